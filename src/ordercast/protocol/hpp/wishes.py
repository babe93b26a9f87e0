"""What chaos may ask of a node: to move, to a node drawn at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any


def wish(chance: Random, name: str, members: Sequence[str]) -> tuple[str, Mapping[str, Any]]:
    others = [other for other in members if other != name] or [name]
    return "Relocate", {"to": chance.choice(others)}
