"""The settings of the published feed: its tree, what is posted, and three repairs.

Adly, Kumar: HPP, a hierarchical propagation protocol (1994). As the settings are by default, the
rules are those of Figures 2 to 4 and sections 5.1 to 5.3.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ordercast.kernel.family import Level
from ordercast.units import MILLISECOND, Duration, take_units


class PublishedFeedOptions(Level, frozen=True, kw_only=True):
    # By child, its parent at the beginning. Who is not listed is a child of the first member.
    tree: dict[str, str] = msgspec.field(default_factory=dict)
    # --- what is posted
    # free: whatever the application has. given: one batch for each input `Posting`.
    posts: Literal["free", "given"] = "free"
    # Of the free ones: this share answers the newest message of another node.
    replies: Annotated[float, Meta(ge=0, le=1)] = 0.5
    # --- Figure 2, and sections 5.1 and 5.3: as printed, or repaired
    # MV grows by one with any message above it; or a message waits for the one before it.
    vector: Literal["increments", "next"] = "increments"
    # A node that recovers keeps what it missed for itself; or it forwards it as any other message.
    recovery: Literal["keeps", "forwards"] = "keeps"
    # Diffused messages are sorted by class: normal, reply, control; or taken as they arrive.
    batches: Literal["sorted", "arrival"] = "sorted"
    # --- a reading of section 4: the drop of a node that is about to move itself
    # leaves at once, or waits for its new parent like all that it sends upwards.
    drop: Literal["at once", "waits"] = "at once"
    # --- the run
    beat: Duration = Duration(10 * MILLISECOND)
    detect: Duration = Duration(50 * MILLISECOND)  # silence of a parent that means it has failed

    def __post_init__(self) -> None:
        take_units(self)
        if self.beat <= 0:
            raise ValueError("beat must be longer than nothing")
        if self.detect < 2 * self.beat:
            raise ValueError("detect must be at least two beats")
        for child in self.tree:
            passed, name = [child], self.tree[child]
            while name in self.tree and name not in passed:
                passed.append(name)
                name = self.tree[name]
            if name in passed:
                raise ValueError(f"tree: {child} is below itself: {' < '.join([*passed, name])}")

    def parent_of(self, name: str, root: str) -> str | None:
        """Who its parent is at the beginning. None: it is the root."""
        return None if name == root else self.tree.get(name, root)

    def children_of(self, name: str, root: str, members: tuple[str, ...]) -> list[str]:
        return [other for other in members if self.parent_of(other, root) == name]
