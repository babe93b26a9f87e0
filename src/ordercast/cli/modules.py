"""Where commands find the modules of families that files name as `module:object`."""

from __future__ import annotations

import sys
from pathlib import Path


def find_beside(*files: Path) -> list[str]:
    """From now on, modules beside these files and in the current folder can be imported.

    Behind all other folders, so that no file there takes the place of an installed module. Returns
    the folders, for processes elsewhere that are to find the same.
    """
    folders = [str(folder) for folder in (*(file.absolute().parent for file in files), Path.cwd())]
    sys.path += [folder for folder in dict.fromkeys(folders) if folder not in sys.path]
    return folders
