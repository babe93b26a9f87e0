"""The views of one group: its members, those agreed to be gone, and the cuts of pending views.

Rules (Newtop, section 5.2, view installation).
 1. Confirmed failures take effect at a cut: the smallest of the last numbers that were agreed on.
    What the excluded members numbered above the cut is discarded. The new view is installed after
    everything that is numbered up to the cut.
 2. A member that is agreed to be gone is no longer waited for, but stays in the view until the next
    one is installed. (The paper forgets it at once, and waits for ever if another member fails
    before the installation.)
 3. A cut below those of pending views absorbs them: all are excluded in one view, at the lower
    cut. With two views a member could deliver an event that depends on one that it discarded.
 4. A view is identified by its members and by how many were excluded before it: the signatures of
    section 6. So views of two sides of a partition are never taken for one another.

What it does not do: decide who is gone.
"""

from __future__ import annotations

from typing import NamedTuple

from ordercast.types import NodeId, View, label_of, view_identity


class PendingView(NamedTuple):
    """A view to be installed: without whom, and after which number."""

    gone: tuple[NodeId, ...]
    cut: int | None  # None: the sequencer has not announced it yet, or there is no order


class Views:
    def __init__(
        self,
        group: str,
        me: NodeId,
        members: tuple[NodeId, ...],
        formation: str = "",
        founding: str = "",
    ) -> None:
        self.group = group
        self.formation = formation
        self.founding = founding
        self.me = me
        self.members = members  # of the current view, sorted. paper: V
        self.excluded = 0  # how many were excluded so far
        self.agreed: dict[NodeId, None] = {}  # confirmed to be gone, and still in the view
        self.pending: list[PendingView] = []  # in the order of agreement; cuts never decrease
        self.live: tuple[NodeId, ...] = ()  # the members but us and those agreed to be gone
        self._update_live()

    def current(self) -> View:
        label = label_of(self.group, self.formation)
        identity = view_identity(label, self.excluded, *self.members)
        return View(self.group, identity, self.members, self.formation, self.founding)

    def exclude(self, gone: tuple[NodeId, ...], cut: int) -> PendingView:
        """Adds an exclusion that was agreed on, which absorbs the pending ones above it."""
        self._agree(gone)
        while self.pending and (self.pending[-1].cut or 0) > cut:
            gone += self.pending.pop().gone
        return self._append(gone, cut)

    def exclude_next(self, gone: tuple[NodeId, ...], cut: int | None) -> PendingView:
        """The same with a sequencer: cuts follow the order of agreement."""
        self._agree(gone)
        return self._append(gone, cut)

    def exclude_with_undecided(self, gone: tuple[NodeId, ...], cut: int) -> PendingView:
        """The sequencer is among them: members whose cut it has not announced go with it."""
        self._agree(gone)
        gone += tuple(one for each in self.pending if each.cut is None for one in each.gone)
        self.pending = [each for each in self.pending if each.cut is not None]
        return self._append(gone, cut)

    def exclude_merged(self, place: int, gone: tuple[NodeId, ...]) -> PendingView:
        """Merges the pending views from this place on with it, into one view at no number."""
        self._agree(gone)
        gone += tuple(one for each in self.pending[place:] for one in each.gone)
        del self.pending[place:]
        return self._append(gone, None)

    def set_cut(self, gone: tuple[NodeId, ...], cut: int) -> None:
        """The sequencer announced the cut of an exclusion."""
        self.pending = [
            PendingView(each.gone, cut) if each.cut is None and each.gone == gone else each
            for each in self.pending
        ]

    def _agree(self, gone: tuple[NodeId, ...]) -> None:
        for peer in gone:
            assert peer in self.live, f"{peer} is excluded twice"
            self.agreed[peer] = None

    def _append(self, gone: tuple[NodeId, ...], cut: int | None) -> PendingView:
        pending = PendingView(tuple(sorted(gone)), cut)
        self.pending.append(pending)
        self._update_live()
        return pending

    def next_cut(self) -> int | None:
        return self.pending[0].cut if self.pending else None

    def install(self) -> tuple[View, PendingView]:
        """Installs the next view."""
        pending = self.pending.pop(0)
        self.members = tuple(one for one in self.members if one not in pending.gone)
        self.excluded += len(pending.gone)
        for peer in pending.gone:
            del self.agreed[peer]
        self._update_live()
        return self.current(), pending

    def _update_live(self) -> None:
        self.live = tuple(one for one in self.members if one != self.me and one not in self.agreed)
