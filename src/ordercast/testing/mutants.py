"""Protocols with a planted bug, which the checker must catch (`Family.mutants`).

They exist so that everybody can see the laws fail: `ordercast sim ... --mutant NAME`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ordercast.kernel.family import Family
from ordercast.protocol.families import FAMILIES

BREAKS: dict[str, str] = {
    name: mutant.breaks for family in FAMILIES.values() for name, mutant in family.mutants.items()
}
"""Each mutant, and the law that it breaks."""
FAMILY_OF: dict[str, str] = {
    name: family.name for family in FAMILIES.values() for name in family.mutants
}
"""Each mutant, and the family that it is one of."""


def mutant_families(name: str, families: Mapping[str, Family] = FAMILIES) -> dict[str, Family]:
    """The families, with the bug planted in its own."""
    return {
        word: family._replace(build=family.mutants[name].build)
        if name in family.mutants
        else family
        for word, family in families.items()
    }
