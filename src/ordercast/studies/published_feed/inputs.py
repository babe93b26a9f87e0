"""What a script may do to a node of the published feed, beside load and faults.

In a scenario: `kind = "give"`, `input = "Move"`, `values = { target = "n3" }`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ordercast.kernel.inputs import Input


@dataclass(frozen=True, slots=True)
class Move(Input):
    """The node asks to become a child of another one (section 4)."""

    group: str
    target: str


@dataclass(frozen=True, slots=True)
class Posting(Input):
    """With `posts = "given"`: the next batch of the load is posted now."""

    group: str
    reply_to: str = ""  # it answers the newest message of this node; "": it is a normal message
