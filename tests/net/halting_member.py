"""A live member whose disk can be halted: `python -m tests.net.halting_member CALLS PART`.

Once the file `halt` is in the working directory, the store's system call number CALLS from then on
(writes and syncs are counted) does PART of its work (`none`, `half` of a write, or `all`), says
HALTED on standard output and never returns. All other threads of the process go on, until it is
killed.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

from ordercast.live.member import main

HALTED = b"HALTED\n"


class HaltingDisk:
    def __init__(self, calls: int, part: str) -> None:
        self._left = calls
        self._part = part
        self._write, self._fsync = os.write, os.fsync
        os.write, os.fsync = self.write, self.fsync

    def write(self, file: int, data: Any) -> int:
        if not self._is_here():
            return self._write(file, data)
        done = {"none": 0, "half": len(data) // 2, "all": len(data)}[self._part]
        self._write(file, data[:done])
        self._halt()

    def fsync(self, file: int) -> None:
        if self._is_here():
            if self._part == "all":
                self._fsync(file)
            self._halt()
        self._fsync(file)

    def _is_here(self) -> bool:
        self._left -= Path("halt").exists()
        return self._left == 0

    def _halt(self) -> Any:
        self._write(sys.stdout.fileno(), HALTED)
        threading.Event().wait()


if __name__ == "__main__":
    HaltingDisk(int(sys.argv[1]), sys.argv[2])
    main()
