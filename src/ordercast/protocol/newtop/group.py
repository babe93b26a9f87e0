"""One totally ordered group at one member: the rules that join streams, suspicions and views.

What it decides: what is cast in the group, what is admitted, when a suspicion is raised, refuted
or confirmed, and when a null message is due. Symmetric order (Newtop, section 4.1): a number is
deliverable when every member has sent one that is at least as large.

Rules.
 1. Whatever is cast takes a fresh number of the process's one clock, and goes by link to all
    live members. It is one stream: agreement messages are numbered like events, so whoever has
    a later packet of a member has its earlier words too, from itself or relayed.
 2. Rules for suspicion, refutation and confirmation are level-triggered: after every packet and
    every tick all of them are asked until none has anything to do.
 3. A suspicion that we know better about is refuted with all that we have beyond it (iii). Who
    is refuted so takes it in, if it connects, and passes it on (iv).
 4. A confirmation of others is taken over where it speaks of suspicions of ours (vi), before our
    own is made: so that all confirm the same sets in the same order.
 5. A member that others may wait for speaks: a null message is sent when `prompt_after` has gone
    by without a word of ours and something is undelivered, unstable or not agreed on. Otherwise
    one is sent every `silence_limit`.
 6. A member that waits for another group's numbers solicits them: whoever is asked and is not
    there yet answers with a null message. Only liveness rests on it.

What it does not do: deliver, which takes all groups of the process together (`member.py`).
"""

from __future__ import annotations

from ordercast.kernel.step import Step
from ordercast.protocol.newtop.casting import Casting
from ordercast.protocol.newtop.packets import (
    Confirm,
    Data,
    Leave,
    Message,
    Move,
    Refute,
    Relayed,
    Retract,
    Start,
    State,
    Suspect,
    Turn,
    to_relay,
)
from ordercast.protocol.newtop.suspicion import Detection
from ordercast.protocol.newtop.views import Install
from ordercast.types import NodeId, Subgroup, View

UNDECIDED = 3
"""So many suspicion limits are enough for an agreement, if one can be reached at all."""


class Group(Casting):
    # --- receiving ---------------------------------------------------------------------------

    def known_up_to(self, sender: NodeId) -> int:
        """The last number that we have of a live member, held back or not."""
        held_back = self.suspicions.pending.get(sender)
        return max(self.streams.up_to(sender), held_back[-1].order if held_back else 0)

    def may_order(self, sender: NodeId, turn: Turn) -> bool:
        """Whether this member may order this event; where all order alike nobody may."""
        return False

    def receive(self, step: Step, sender: NodeId, message: Message) -> None:
        if sender not in self.live or sender in self.suspicions.overrun:
            return
        if sender in self.suspicions.held:
            self.suspicions.hold_back(sender, message, self.streams.limit.size)
        elif message.order > self.streams.up_to(sender):
            self._admit(step, sender, message)

    def _admit(self, step: Step, sender: NodeId, message: Message) -> None:
        """The next of a stream takes effect, whoever brought it."""
        self.streams.admit(sender, message)
        self.order.clock.witness(message.order)
        self.suspicions.heard[sender] = self.patience.time
        asked = message.solicits
        if asked and (
            self.streams.last_order < asked or self.told_up_to < min(asked, self._delivered_up_to())
        ):
            self.is_asked = True
        if isinstance(message, Data | Turn):
            self._admit_event(step, sender, message)
        elif isinstance(message, Suspect):
            self._note_suspicion(sender, message)
        elif isinstance(message, Retract):
            self._forget_suspicion(sender, message)
        elif isinstance(message, Refute):
            self._forget_suspicion(sender, message)
            self._take_refutation(step, message)
        elif isinstance(message, Confirm):
            detection = tuple(message.detection)
            self.suspicions.confirmed[sender].append((detection, message.order))
        elif isinstance(message, Leave):
            self.departed[sender] = None
            self.suspicions.forced.setdefault(sender, "left")
        elif isinstance(message, Move):
            self.moves[sender] = (message.to, message.order)
        elif isinstance(message, Start):
            self.starts[sender] = message.counter
        elif isinstance(message, State):
            self._admit_state(sender, message)

    def _admit_state(self, sender: NodeId, message: State) -> None:
        if message.order <= self.floor:
            self.is_over = True  # it was cast without waiting for us
        elif not self.has_state:
            self.has_state = True
            self.order.waiting.push(sender, message)

    def _admit_event(self, step: Step, sender: NodeId, message: Data | Turn) -> None:
        self.order.waiting.push(sender, message)

    def _admit_relayed(self, step: Step, source: NodeId, messages: list[Relayed]) -> None:
        """Takes what is new of a relayed stream, if it connects to what we have of it."""
        for message in messages:
            up_to = self.streams.up_to(source)
            if message.previous > up_to:
                return  # the source's own link brings it, or the answer to a suspicion of ours
            if message.order > up_to:
                self._admit(step, source, message)

    # --- agreement on failures ---------------------------------------------------------------

    def suspect(self, step: Step, peer: NodeId, cause: str) -> None:  # paper: (i)
        last_number = self.streams.up_to(peer)
        self.suspicions.hold(peer, last_number, self.patience.time)
        step.note("suspect", group=self.label, peer=peer.name, cause=cause)
        self._cast(step, Suspect(self.name, *self._head(), peer, last_number))

    def _note_suspicion(self, sender: NodeId, message: Suspect) -> None:  # paper: (ii)
        if message.peer == self.me:
            self.is_asked = True
        elif message.peer in self.live:
            self.suspicions.gossip[sender][message.peer] = message.last_number

    def _forget_suspicion(self, sender: NodeId, message: Retract | Refute) -> None:
        about = self.suspicions.gossip[sender]
        if about.get(message.peer, message.last_number + 1) <= message.last_number:
            del about[message.peer]

    def _take_refutation(self, step: Step, message: Refute) -> None:
        peer = message.peer
        if peer == self.me or peer not in self.live:
            return
        if peer not in self.suspicions.held:
            self._admit_relayed(step, peer, message.messages)
            return
        ours = self.suspicions.held[peer]
        news = message.messages
        if news and news[-1].order > ours and news[0].previous <= ours:  # paper: (iv)
            held_back = self.suspicions.let_go(peer)
            step.note("refute", group=self.label, peer=peer.name)
            self._admit_relayed(step, peer, news)
            self._refute(step, peer, ours)
            self.replayed.extend((peer, one) for one in held_back)

    def _refute(self, step: Step, peer: NodeId, last_number: int) -> None:
        messages = [to_relay(one) for one in self.streams.beyond(peer, last_number)]
        self._cast(step, Refute(self.name, *self._head(), peer, last_number, messages))

    def agree(self, step: Step) -> bool:
        """Asks every rule until none has anything to do. True if one had."""
        moved = False
        while (self.replayed or not self.suspicions.at_rest) and self._agree_once(step):
            moved = True
        return moved

    def _agree_once(self, step: Step) -> bool:
        if self.replayed:
            self.receive(step, *self.replayed.popleft())
            return True
        suspicions = self.suspicions
        peer = suspicions.to_be_forced(self.live)
        if peer is not None:
            self.suspect(step, peer, suspicions.forced[peer])
            return True
        known_better = suspicions.refutable(self.streams.up_to)
        if known_better is not None:  # paper: (iii)
            holder, peer, last_number = known_better
            del suspicions.gossip[holder][peer]
            self._refute(step, peer, last_number)
            return True
        if self._take_over(step):
            return True
        detection = suspicions.unanimous(self.live)
        if detection is not None:  # paper: (v)
            self._confirm(step, detection)
            return True
        return False

    def _take_over(self, step: Step) -> bool:  # paper: (vi), (vii)
        suspicions = self.suspicions
        for peer in suspicions.unsuspecting(self.live):
            if not suspicions.confirmed[peer]:
                continue
            detection, order = suspicions.confirmed[peer][0]
            if any(one == self.me for one, _ in detection):
                suspicions.forced.setdefault(peer, "excluded-us")
                return True
            if detection in suspicions.done:
                suspicions.confirmed[peer].popleft()
                self._learn_cut(peer, detection, order)
                return True
            if suspicions.is_shared(detection):
                suspicions.confirmed[peer].popleft()
                self._confirm(step, detection, (peer, order))
                return True
            self.contradictions += 1
            suspicions.forced.setdefault(peer, "contradicts")
            return True
        return False

    def _confirm(
        self, step: Step, detection: Detection, via: tuple[NodeId, int] | None = None
    ) -> None:
        """`via` is whose confirmation this takes over, and its number."""
        gone = tuple(peer for peer, _ in detection)
        for peer in gone:
            step.note("confirm", group=self.label, peer=peer.name)
        self._cast(step, Confirm(self.name, *self._head(), list(detection)))
        self.suspicions.done.append(detection)
        self.suspicions.forget(gone)
        for peer in gone:
            self.streams.forget(peer)
        self._exclude(step, detection, via)

    def _exclude(self, step: Step, detection: Detection, via: tuple[NodeId, int] | None) -> None:
        """Where the cut lies, and what is discarded."""
        gone = tuple(peer for peer, _ in detection)
        install = self.views.exclude(gone, min(number for _, number in detection))
        assert install.cut is not None
        for data in self.order.waiting.drop(self.label, install.gone, install.cut):
            if not isinstance(data, State):  # with it all of the formation is lost
                self._lose(step, data)

    def _lose(self, step: Step, event: Data | Turn) -> None:
        step.note(
            "lose",
            group=self.label,
            origin=event.origin.name,
            number=self.number_of(event),
            cause="discarded",
        )

    def _learn_cut(self, sender: NodeId, detection: Detection, order: int) -> None:
        """Somebody else confirmed the same. Where all order alike, that says nothing new."""

    def install(self, step: Step) -> None:
        self._report(step, *self.views.install())

    def _report(self, step: Step, view: View, install: Install) -> None:
        """Tells the application of a view, and of those who are not in it though they stayed."""
        if not self.has_begun:
            self.is_over = self.is_over or self.initiator in install.gone
            return
        step.install(view)
        lost = tuple(one for one in install.gone if one not in self.departed)
        if lost:
            step.tell(Subgroup(self.name, view, lost))

    @property
    def blocks_others(self) -> bool:
        """Whether sends in other groups must wait until an event of ours has got its number."""
        return False

    # --- time, stability, nulls --------------------------------------------------------------

    def awake(self, now: int) -> None:
        """Every door begins with it: time has gone by."""
        self.patience.advance(now, self.sleeps, self.options.prompt_after)

    def tick(self, step: Step) -> None:
        since = self.patience.time - self.options.suspicion_limit
        for peer in self.suspicions.late(self.live, since):
            self.suspect(step, peer, "silent")
        since = self.patience.time - UNDECIDED * self.options.suspicion_limit
        for peer in self.suspicions.undecided(self.live, since):
            self.suspect(step, peer, "undecided")
        self.sleeps = 0  # the timer has run out

    def settle(self, step: Step, head: int | None, bound: int) -> None:
        """Lets go of what is stable, speaks if somebody may wait for it, and sets the timer."""
        own = self.received_by_all()
        waits_for = head if head is not None and head > self.bound() else 0
        own = min(own, bound)
        stable = min(own, self.streams.delivered.stable_up_to(own))
        if stable > self.stable:
            self.stable = stable
            self.streams.discard_up_to(stable)
            self.window.discard_up_to(stable)
        options = self.options
        silence = options.silence_limit
        if self.live:
            if self.is_busy(waits_for, own):
                silence = options.prompt_after
            if self.is_asked or self.patience.time - self.cast_at >= silence:
                self._cast_null(step, waits_for)
        if not 0 < self.sleeps <= silence:
            left = silence - (self.patience.time - self.cast_at)
            self.sleeps = max(options.prompt_after, left)
            step.set_timer(self.label, self.sleeps)

    def is_busy(self, waits_for: int, deliverable: int) -> bool:
        """Whether anybody may wait for a word of ours."""
        return bool(
            waits_for
            or not self.has_begun
            or self.streams.unstable_events
            or (not self.is_full and self.told_up_to < min(self.streams.newest_event, deliverable))
            or self.views.pending
            or self.suspicions.held
        )

    # --- what comes of it --------------------------------------------------------------------

    def is_ready(self, message: Data | Turn) -> bool:
        """Whether what comes next is here. A turn may come before its event does."""
        return True

    def hand_over(self, step: Step, numberer: NodeId, message: Data | Turn) -> None:
        """Delivers what comes next."""
        assert isinstance(message, Data)
        assert numberer in self.views.members, "an event is delivered in a view of its sender"
        step.deliver(self.event(message, message.order))

    def counters(self) -> dict[str, int]:
        return {
            "present": len(self.live) + 1,
            "unstable": self.window.count,
            "held": sum(kept.count for kept in self.streams.kept.values()),
            "waiting": self.order.waiting.count_of(self.label),
            "suspected": len(self.suspicions.held),
            "contradictions": self.contradictions,
        }
