"""When a member of an open group installs its first view, and for whom it waits until then.

Rules.
 1. A member that may found the group (`kernel/founding.py`) has a view as soon as those are present
    that founding takes, none of which has one. If it was in the group before, alone, or lost its
    folder and may have been, it asks for the suspicion limit whether others are in it now. Views
    are opinions here, so two foundings do no harm: the groups merge when their members meet. So one
    that lost its folder counts like any other where a number is expected.
 2. Any other member waits until a member that has a view has welcomed it, that is, names it in its
    roster; and until all members that this one names are present and their streams have begun, or
    the suspicion limit is over. So a member that has a view misses nothing of the members in it;
    and a roster of members that do not exist costs a newcomer one suspicion limit.

What it does not do: send anything, or remember anything about peers.
"""

from __future__ import annotations

from ordercast.kernel.family import FoundingRule
from ordercast.kernel.founding import lacking, suffices, too_few
from ordercast.protocol.fifo.peers import PRESENT, Peer, Peers, Standing
from ordercast.types import NodeId, Waiting

NAMES_SHOWN = 8
"""Names that a `Waiting` lists."""


class FirstView:
    def __init__(self, me: NodeId, group: str, entry: FoundingRule, ticks: int) -> None:
        """`ticks`: the suspicion limit, in own heartbeats."""
        self.me = me
        self.group = group
        self.entry = entry
        self.since = 0  # when we began to wait, on our own clock
        self.ticks_to_ask = ticks if entry.asks or entry.lost else 0
        self._shown: tuple[tuple[str, ...], str] | None = None  # what the application was shown
        self._shown_for = 0  # own heartbeats

    def named(self, peers: Peers) -> dict[str, NodeId]:
        """Who was a member before us: those that the members that welcomed us name as present, and
        those whose return they await."""
        welcomed = self._welcomed_by(peers)
        away = {node.name: node for peer in welcomed for node in peer.members_away}
        present = {node.name: node for peer in welcomed for node in peer.members}
        return {name: node for name, node in (away | present).items() if name != self.me.name}

    def _welcomed_by(self, peers: Peers) -> list[Peer]:
        return [
            peer
            for peer in peers
            if peer.standing is PRESENT and peer.has_view and self.me in peer.members
        ]

    def awaited(self, peers: Peers) -> list[str] | None:
        """Who is missing of those whom the members that welcomed us have in their views. None: none
        has welcomed us."""
        named = {node.name: None for peer in self._welcomed_by(peers) for node in peer.members}
        if not named:
            return None
        here = {
            peer.name
            for peer in peers
            if peer.standing is Standing.LEFT or (peer.standing is PRESENT and peer.has_begun)
        }
        return [name for name in named if name not in here and name != self.me.name]

    def is_in(self, peers: Peers) -> bool:
        """Whether the first view can be installed now."""
        there = [peer for peer in peers if peer.standing is PRESENT]
        if any(peer.has_view for peer in there):
            return self.awaited(peers) == []
        if self.ticks_to_ask:
            return False
        waiting = (peer.name for peer in there if peer.members)  # those that said so
        return suffices(self.entry, (self.me.name, *waiting))

    def news(
        self, peers: Peers, known: tuple[str, ...], interval: int, giver: NodeId | None
    ) -> Waiting | None:
        """Why we still wait, if that has changed. Asked once for each of our own heartbeats.

        `giver`: who was asked for the application's state.
        """
        self._shown_for += 1
        found = self._why(peers, known)
        if giver is not None:
            found = (giver.name,), f"{giver.name} was asked for the state of {self.group!r}"
        if found == self._shown or (self._shown is not None and self._shown_for < interval):
            return None
        self._shown, self._shown_for = found, 0
        return Waiting(self.group, *found, self.since)

    def _why(self, peers: Peers, known: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        entry, group = self.entry, repr(self.group)
        there = [node.name for node in peers.present]
        awaited = self.awaited(peers)
        if awaited:
            return tuple(awaited[:NAMES_SHOWN]), f"members of {group} that have not answered yet"
        if self.ticks_to_ask:
            was = "lost its data folder" if entry.lost else f"was the only member of {group}"
            return known[:NAMES_SHOWN], f"it {was}, and asks whether others are in it"
        if len(entry.last) > 1:
            here = [name for name in entry.last if name in there or name == self.me.name]
            missing = tuple(name for name in entry.last if name not in here)
            return missing[:NAMES_SHOWN], (
                f"nobody who answers is in {group}, and of its {len(entry.last)} last members "
                f"{len(here)} are here: more than half of them can found it again"
            )
        if entry.expect:
            return (), too_few(entry.expect, (self.me.name, *there))
        if entry.lost:
            return tuple(there[:NAMES_SHOWN]), f"nobody here is in {group}: {lacking(entry, there)}"
        if entry.founder:
            return (entry.founder,), f"{entry.founder} founds {group}, and is not in it yet"
        if there and all(peer.members for peer in peers if peer.standing is PRESENT):  # all said so
            return tuple(there[:NAMES_SHOWN]), (
                f"none of them is in {group} either: one must found it, so give it `expect`, "
                "`founder` or `members`"
            )
        if there or known:
            asked = (*there, *known)[:NAMES_SHOWN]
            return asked, f"no answer yet from anybody who may be in {group}"
        return (), f"nobody is known who may be in {group}"
