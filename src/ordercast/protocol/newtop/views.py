"""The views of one group: who is in it, who is agreed to be gone, and where the cuts lie.

Rules (Newtop, section 5.2, view installation).
 1. Confirmed failures take effect at a cut: the smallest of the last numbers that were agreed on.
    What those who are gone numbered above the cut is discarded; the new view comes after all
    that is numbered up to the cut.
 2. Who is agreed to be gone is waited for no longer, but stays in the view until it is installed.
    (The paper forgets it at once, and so waits for ever if somebody dies before the installation.)
 3. A cut below those that are still pending absorbs them: all are excluded in one view, at the
    lower cut. Two views there would let a member deliver what depends on what it discarded.
 4. A view is known by its members and by how many were excluded before it: the signatures of
    section 6. So views of separate parts of a group are never taken for one another.

What it does not do: decide who is gone.
"""

from __future__ import annotations

from typing import NamedTuple

from ordercast.types import NodeId, View, label_of, view_identity


class Install(NamedTuple):
    """A view to come: without whom, and after which number."""

    gone: tuple[NodeId, ...]
    cut: int | None  # None: the sequencer has not said it yet, or there is no order


class Views:
    def __init__(self, group: str, me: NodeId, members: tuple[NodeId, ...]) -> None:
        self.group = group
        self.formation = ""
        self.me = me
        self.members = members  # of the view in force, sorted. paper: V
        self.excluded = 0  # how many were excluded so far
        self.agreed: dict[NodeId, None] = {}  # confirmed to be gone, and still in the view
        self.pending: list[Install] = []  # in the order of agreement; cuts never fall
        self.live: tuple[NodeId, ...] = ()  # the members but us and those agreed to be gone
        self._who_is_live()

    def current(self) -> View:
        label = label_of(self.group, self.formation)
        identity = view_identity(label, self.excluded, *self.members)
        return View(self.group, identity, self.members, self.formation)

    def exclude(self, gone: tuple[NodeId, ...], cut: int) -> Install:
        """Agrees on an exclusion. What it returns has absorbed the pending ones above it."""
        self._agree(gone)
        while self.pending and (self.pending[-1].cut or 0) > cut:
            gone += self.pending.pop().gone
        return self._append(gone, cut)

    def exclude_in_turn(self, gone: tuple[NodeId, ...], cut: int | None) -> Install:
        """The same where a sequencer orders: cuts come in the order of agreement."""
        self._agree(gone)
        return self._append(gone, cut)

    def exclude_with_the_unsaid(self, gone: tuple[NodeId, ...], cut: int) -> Install:
        """The sequencer is among them: those whose cut it would have said go with it."""
        self._agree(gone)
        gone += tuple(one for each in self.pending if each.cut is None for one in each.gone)
        self.pending = [each for each in self.pending if each.cut is not None]
        return self._append(gone, cut)

    def exclude_with_those_from(self, place: int, gone: tuple[NodeId, ...]) -> Install:
        """Those that are pending from this place on become one view with it, at no number."""
        self._agree(gone)
        gone += tuple(one for each in self.pending[place:] for one in each.gone)
        del self.pending[place:]
        return self._append(gone, None)

    def say_cut(self, gone: tuple[NodeId, ...], cut: int) -> None:
        """The sequencer said where an exclusion comes."""
        self.pending = [
            Install(each.gone, cut) if each.cut is None and each.gone == gone else each
            for each in self.pending
        ]

    def _agree(self, gone: tuple[NodeId, ...]) -> None:
        for peer in gone:
            assert peer in self.live, f"{peer} is excluded twice"
            self.agreed[peer] = None

    def _append(self, gone: tuple[NodeId, ...], cut: int | None) -> Install:
        install = Install(tuple(sorted(gone)), cut)
        self.pending.append(install)
        self._who_is_live()
        return install

    def next_cut(self) -> int | None:
        return self.pending[0].cut if self.pending else None

    def install(self) -> tuple[View, Install]:
        """The next view comes into force."""
        install = self.pending.pop(0)
        self.members = tuple(one for one in self.members if one not in install.gone)
        self.excluded += len(install.gone)
        for peer in install.gone:
            del self.agreed[peer]
        self._who_is_live()
        return self.current(), install

    def _who_is_live(self) -> None:
        self.live = tuple(one for one in self.members if one != self.me and one not in self.agreed)
