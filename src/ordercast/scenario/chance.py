"""Random streams of one run, each with a seed of its own.

Topology, delays, faults, workload and every member draw from different streams, all derived
from the one seed of the run, so that drawing more of one does not shift the others.
"""

from __future__ import annotations

from random import Random


def stream(seed: int, *path: object) -> Random:
    """The stream of this name. Seeding by text hashes it the same way in every process."""
    return Random("/".join(map(str, (seed, *path))))
