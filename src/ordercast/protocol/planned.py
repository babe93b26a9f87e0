"""Families that are planned: what they will promise is known, and no folder has them yet."""

from ordercast.kernel.family import Promises

PLANNED: dict[str, Promises] = {}
