"""The terms of a group: what must be the same at all members, as text.

Members compare them when they meet. As they are text, an error can name both values, and members of
different versions can compare what they have in common.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b

import msgspec

from ordercast.kernel.family import Plan

LONGEST_TERM = 100
OF_THE_GROUP = frozenset({"kind", "members", "founder"})
"""Terms that are no options. An option of such a name has a longer one here."""
OPTIONAL = frozenset({"expect", "founder"})
"""Terms about founding, which a member that joins later need not know: compared if both have it."""
_LABELS = {"kind": "family"}


def terms_of(kind: str, plan: Plan, personal: Collection[str] = ()) -> dict[str, str]:
    """Of a group of this kind. Personal options concern only the member itself."""
    terms = {"kind": kind, "members": _names(plan)}
    if plan.entry is not None and plan.entry.founder:
        terms["founder"] = plan.entry.founder
    assert isinstance(plan.options, msgspec.Struct)
    for name, value in msgspec.structs.asdict(plan.options).items():
        if name not in personal:
            terms[f"option {name}" if name in OF_THE_GROUP else name] = _short(str(value))
    return terms


def _short(text: str) -> str:
    """Texts that are equal exactly where the long ones are, but for hash collisions."""
    if len(text) <= LONGEST_TERM:
        return text
    digest = blake2b(text.encode(), digest_size=8).hexdigest()
    return f"{text[: LONGEST_TERM - 20]} … {digest}"


def _names(plan: Plan) -> str:
    if plan.entry is not None:
        return "open"
    names = " ".join(plan.members)
    if len(names) > LONGEST_TERM:
        names = f"{len(plan.members)} of {blake2b(names.encode(), digest_size=8).hexdigest()}"
    return names


def differences(ours: dict[str, str], theirs: dict[str, str]) -> str:
    """What is not the same and must be, as a text; "": all is well."""
    return "; ".join(
        f"{_LABELS.get(name, name)} is {ours.get(name, 'unknown')} here and "
        f"{theirs.get(name, 'unknown')} there"
        for name in sorted({**ours, **theirs})
        if ours.get(name) != theirs.get(name)
        and not (name in OPTIONAL and (name not in ours or name not in theirs))
    )
