"""The families that this version can run, by the name that scenarios and levels use."""

from ordercast.kernel.family import Family
from ordercast.protocol import cluster, fifo, hpp, newtop, transis

FOLDERS = (fifo, cluster, newtop, transis, hpp)

FAMILIES: dict[str, Family] = {
    family.name: family for folder in FOLDERS for family in folder.FAMILIES
}
DEFAULT = next(iter(FAMILIES))
"""The family of a file that names none."""
