"""How the members of a group agree on failures: suspicion, refutation, confirmation.

Rules (Newtop, section 5.2; the numbers in brackets are the paper's).
 1. All rules are level-triggered: after every packet and every tick they are applied until none
    has anything to do.
 2. A member refutes a suspicion if it has received more from the suspect, and sends along
    everything beyond the suspicion (iii). One refutation answers all that suspect the same member,
    and is not repeated for a suspicion limit: links lose nothing. A member whose suspicion is
    refuted applies these packets if they connect to what it has, and refutes in turn (iv).
 3. A member adopts the confirmation of another member that matches its own suspicions (vi), before
    it makes one of its own. So all confirm the same sets in the same order.

What it does not do: remember who suspects whom (`suspicion.py`), or decide at which number the
exclusion takes effect (`placement.py`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ordercast.kernel.step import Step
from ordercast.protocol.newtop.packets import (
    Confirm,
    Message,
    Refute,
    Relayed,
    Retract,
    Suspect,
    to_relay,
)
from ordercast.protocol.newtop.suspicion import Detection, Refutation, Suspicions, Via
from ordercast.types import NodeId

if TYPE_CHECKING:
    from ordercast.protocol.newtop.epoch import GroupEpoch

UNDECIDED = 3
"""So many suspicion limits are enough for an agreement, if one can be reached at all."""


class Agreement:
    def __init__(self, others: tuple[NodeId, ...]) -> None:
        self.suspicions = Suspicions(others)
        # Packets that were withheld until a suspicion was refuted, and are received now.
        self.replayed: deque[tuple[NodeId, Message]] = deque()
        self.contradictions = 0  # confirmations that no member that follows the rules sends

    # --- what others say ---------------------------------------------------------------------

    def note_suspicion(
        self, epoch: GroupEpoch, sender: NodeId, message: Suspect
    ) -> None:  # paper: (ii)
        if message.peer == epoch.me:
            epoch.is_solicited = True
        elif message.peer in epoch.live:
            self.suspicions.gossip[sender][message.peer] = message.last_number

    def forget_suspicion(self, sender: NodeId, message: Retract | Refute) -> None:
        about = self.suspicions.gossip[sender]
        if about.get(message.peer, message.last_number + 1) <= message.last_number:
            del about[message.peer]

    def take_refutation(self, epoch: GroupEpoch, step: Step, message: Refute) -> None:
        peer = message.peer
        if peer == epoch.me or peer not in epoch.live:
            return
        if peer not in self.suspicions.suspected:
            self._apply_relayed(epoch, step, peer, message.messages)
            return
        ours = self.suspicions.suspected[peer]
        news = message.messages
        if news and news[-1].order > ours and news[0].previous <= ours:  # paper: (iv)
            withheld = self.suspicions.release(peer)
            step.note("refute", group=epoch.label, peer=peer.name)
            self._apply_relayed(epoch, step, peer, news)
            self._refute(epoch, step, peer, ours)
            self.replayed.extend((peer, one) for one in withheld)

    def _apply_relayed(
        self, epoch: GroupEpoch, step: Step, source: NodeId, messages: list[Relayed]
    ) -> None:
        """Applies what is new of a relayed stream, if it connects to what we have of it."""
        for message in messages:
            up_to = epoch.streams.up_to(source)
            if message.previous > up_to:
                return  # the source's own link brings it, or the answer to a suspicion of ours
            if message.order > up_to:
                epoch.apply(step, source, message)

    def contradict(self, epoch: GroupEpoch, sender: NodeId) -> None:
        """The sender confirmed what it cannot have agreed on."""
        self.contradictions += 1
        epoch.exclude_soon(sender, "contradicts")

    # --- what we suspect ---------------------------------------------------------------------

    def suspect_late(self, epoch: GroupEpoch, step: Step) -> None:
        """Suspects members that are silent, or that have not shared a suspicion for too long."""
        limit, now = epoch.suspicion_limit, epoch.patience.time
        for peer in self.suspicions.late(epoch.live, now - limit):
            self.suspect(epoch, step, peer, "silent")
        for peer in self.suspicions.undecided(epoch.live, now - UNDECIDED * limit):
            self.suspect(epoch, step, peer, "undecided")

    def suspect(
        self, epoch: GroupEpoch, step: Step, peer: NodeId, cause: str
    ) -> None:  # paper: (i)
        last_number = epoch.streams.up_to(peer)
        self.suspicions.suspect(peer, last_number, epoch.patience.time)
        step.note("suspect", group=epoch.label, peer=peer.name, cause=cause)
        epoch.cast(step, Suspect(epoch.name, *epoch.head(), peer, last_number))

    def _refute(self, epoch: GroupEpoch, step: Step, peer: NodeId, last_number: int) -> None:
        messages = [to_relay(one) for one in epoch.streams.beyond(peer, last_number)]
        epoch.cast(step, Refute(epoch.name, *epoch.head(), peer, last_number, messages))
        up_to, now = epoch.streams.up_to(peer), epoch.patience.time
        self.suspicions.refuted[peer] = Refutation(last_number, up_to, now)

    # --- what all agree on -------------------------------------------------------------------

    def agree(self, epoch: GroupEpoch, step: Step) -> bool:
        """Applies every rule until none has anything to do. True if one had."""
        moved = False
        while (self.replayed or not self.suspicions.at_rest) and self._agree_once(epoch, step):
            moved = True
        return moved

    def _agree_once(self, epoch: GroupEpoch, step: Step) -> bool:
        if self.replayed:
            epoch.receive(step, *self.replayed.popleft())
            return True
        suspicions = self.suspicions
        peer = suspicions.to_be_forced(epoch.live)
        if peer is not None:
            self.suspect(epoch, step, peer, suspicions.forced[peer])
            return True
        long_ago = epoch.patience.time - epoch.suspicion_limit
        refutable = suspicions.refutable(epoch.streams.up_to, long_ago)
        if refutable is not None:  # paper: (iii)
            self._refute(epoch, step, *refutable)
            return True
        if self._adopt(epoch, step):
            return True
        detection = suspicions.unanimous(epoch.live)
        if detection is not None:  # paper: (v)
            self.confirm(epoch, step, detection)
            return True
        return False

    def _adopt(self, epoch: GroupEpoch, step: Step) -> bool:  # paper: (vi), (vii)
        suspicions = self.suspicions
        for peer in suspicions.unsuspecting(epoch.live):
            if not suspicions.confirmed[peer]:
                continue
            detection, order = suspicions.confirmed[peer][0]
            if any(one == epoch.me for one, _ in detection):
                suspicions.forced.setdefault(peer, "excluded-us")
            elif detection in suspicions.done:
                suspicions.confirmed[peer].popleft()
                epoch.placement.learn_cut(epoch, peer, detection, order)
            elif suspicions.is_shared(detection):
                suspicions.confirmed[peer].popleft()
                self.confirm(epoch, step, detection, (peer, order))
            else:
                self.contradict(epoch, peer)
            return True
        return False

    def confirm(self, epoch: GroupEpoch, step: Step, detection: Detection, via: Via = None) -> None:
        """`via` is the member whose confirmation is adopted, and the number of that packet."""
        gone = tuple(peer for peer, _ in detection)
        for peer in gone:
            step.note("confirm", group=epoch.label, peer=peer.name)
        epoch.cast(step, Confirm(epoch.name, *epoch.head(), list(detection)))
        self.suspicions.done.append(detection)
        self.suspicions.forget(gone)
        epoch.giving.forget(gone)
        for peer in gone:
            epoch.streams.forget(peer)
        epoch.placement.exclude(epoch, step, detection, via)
