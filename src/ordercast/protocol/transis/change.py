"""One change of configuration: from suggestions to a decision that all who come along carry out.

Rules (section 6 of the paper has two protocols, for faults and for joins; here is one for both).
 1. Stage 0: nothing is wanted. Stage 1: candidates are courted, and nothing is promised to them.
    Stage 2: there are proposals.
 2. A member whose suggestion has grown proposes it, to all in it, also to those that failed.
    From its first proposal on a member takes nothing from members that do not come along.
 3. When all who come along have proposed the same, that is a decision, with a cut
    (`suggestion.py`). A member fetches what it lacks up to the cut, and then says `Ready`. From
    then on it delivers nothing in this configuration, and casts nothing.
 4. When all are ready for our latest decision, it is installed. A member that has installed a
    decision says so, and all that were ready for it install it too, even if they have proposed more
    since. So two members that count on each other take the same step. A member or a candidate that
    has installed what we are not ready for is elsewhere, and has failed for us.
 5. A member that excludes us is excluded by us. A candidate may name us in a configuration that we
    are ready for and have not installed yet: its proposal counts when we are there.
 6. Only members of a configuration say that one of them has failed. What a candidate says of them
    may be about a configuration that they have left, and is theirs to confirm. A member that the
    candidate excludes is there and excludes the candidate, or the others miss it themselves. So a
    configuration goes into a merge as a whole, without those that its own members miss. The
    proposal itself counts, for its sender does not repeat it when these come to miss them too.
 7. A proposal of the view as it is asks for a new view of the same members: one whose application
    does not give its state proposes that (`states.py`).
 8. Stage 2 is bounded. A member that does not agree within the stage limit has failed, and so has
    one that is not ready within two of them (within four, if we are not ready ourselves). Members
    with smaller names than ours have half as much time again. One that answers probes is there,
    and its packets may be late: it has four stage limits and three seconds in any case. But a
    candidate that has announced a view with one in it that has failed for us is not late: it waits
    for what we shall not say (rule 6). Each time there are more failed ones, so a change ends.
 9. If all that we lack of the cut is held, and waits for what is beyond the cut or for itself, an
    origin has told others another event of the same number. Of those that do not come along we
    forget what is held, and fetch what the others have. One that comes along has failed.

What it does not do: send anything, or carry out a decision. `member.py` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import le

from ordercast.protocol.transis.graph import CausalGraph
from ordercast.protocol.transis.options import LARGEST_GROUP, SynchronyOptions
from ordercast.protocol.transis.packets import (
    MOST_LIVES,
    ConfigurationId,
    GoneMember,
    Joint,
    Lineage,
    Proposal,
    Ready,
)
from ordercast.protocol.transis.patience import PROBES, limit_of_link
from ordercast.protocol.transis.suggestion import Decision, Suggestion, decide, joint_knowledge
from ordercast.types import NodeId


class ConfigurationChange:
    """From one configuration to the next: each has its own."""

    def __init__(
        self,
        me: NodeId,
        cid: ConfigurationId,
        members: tuple[NodeId, ...],
        options: SynchronyOptions,
    ) -> None:
        self.me = me
        self.cid = cid
        self.members = members
        self.options = options
        self.stage = 0
        self.suggestion = Suggestion(me, cid, members)
        self.dirty = False  # the suggestion has grown since we proposed it
        self.court_until: int | None = None  # the end of stage 1, in patient time
        self.proposed_at = 0  # in patient time
        self.probe_at = 0  # whom the change waits for
        self.proposals: dict[NodeId, Proposal] = {}  # the latest of each
        self.early: dict[NodeId, Proposal] = {}  # for the configuration after this one
        self.decision: Decision | None = None  # by our latest proposal
        self.readied: dict[ConfigurationId, Decision] = {}  # those that we said `Ready` to
        self.readies: dict[NodeId, Ready] = {}  # the latest of each
        self.asked: dict[int, tuple[NodeId, int]] = {}  # by place: whom we asked to send, and when

    # --- suggestions -------------------------------------------------------------------------

    def grow(
        self, joined: Iterable[tuple[NodeId, ConfigurationId]], failed: Iterable[NodeId]
    ) -> list[NodeId]:
        """Joins a suggestion into ours. Returns who has failed now."""
        grew, news = self.suggestion.grow(joined, failed)
        if grew:
            self.dirty = True
        return news

    def court(self, candidates: Iterable[tuple[NodeId, ConfigurationId]], until: int) -> bool:
        """In stages 0 and 1: these may come along. Whether any of them is new."""
        grew, _ = self.suggestion.grow(candidates, ())
        if grew and self.stage == 0:
            self.stage, self.court_until = 1, until
        return grew

    def decline(self, candidate: NodeId) -> bool:
        """In stage 1: it does not come along. Whether it was a candidate."""
        if self.stage != 1 or candidate in self.members:
            return False
        if candidate not in self.suggestion.joined:
            return False
        self.suggestion.drop(candidate)
        if all(node in self.members for node in self.suggestion.joined):
            self.stage, self.court_until = 0, None
        return True

    def is_failed(self, node: NodeId) -> bool:
        return node in self.suggestion.failed

    def repeat(self) -> None:
        """The same members go on in a new view, unless they are about to do so anyway."""
        if self.stage < 2:
            self.dirty = True

    # --- proposals ---------------------------------------------------------------------------

    def may_propose(self, time: int) -> bool:
        if self.stage == 1 and self.court_until is not None and time >= self.court_until:
            return True
        return self.dirty and (
            self.stage < 2 or time >= self.proposed_at + self.options.propose_every
        )

    def propose(self, group: str, serial: int, graph: CausalGraph, time: int) -> Proposal:
        """Our suggestion as it is now. Streams of members that do not come along are frozen."""
        self.stage, self.dirty, self.court_until = 2, False, None
        self.proposed_at, self.decision = time, None
        self.probe_at = time + self.options.stage_limit // 2
        self.asked = {}
        joined, failed = self.suggestion.as_proposed()
        received = tuple(graph.received)
        own = Proposal(group, self.cid, serial, joined, failed, graph.sent, received)
        self.proposals[self.me] = own
        self.freeze(graph)
        return own

    def freeze(self, graph: CausalGraph) -> None:
        """Members that do not come along from here are admitted only as far as a proposal of ours
        reaches, so that nobody has more than the cut."""
        joined, failed = self.suggestion.joined, self.suggestion.failed
        side = [
            proposal.received
            for node, proposal in self.proposals.items()
            if proposal.cid == self.cid and node not in failed and joined.get(node) == self.cid
        ]
        graph.freeze(
            {
                place: max(received[place] for received in side)
                for place, node in enumerate(self.members)
                if node in failed or joined[node] != self.cid
            }
        )

    def hear(self, sender: NodeId, proposal: Proposal) -> list[NodeId]:
        """A proposal arrived, which no member that follows the rules would not have sent."""
        joined = self.suggestion.joined
        excludes_us = self.me in proposal.failed
        where = dict(proposal.joined).get(self.me)
        if where in self.readied and (sender in self.early or len(self.early) < MOST_LIVES):
            self.early[sender] = proposal
        if proposal.cid == self.cid:
            if excludes_us:
                return self.grow((), (sender,))
        elif sender in self.members:
            is_elsewhere = proposal.cid.height >= self.cid.height  # else the proposal is old
            return self.grow((), (sender,)) if is_elsewhere else []
        elif where != self.cid:
            return []
        elif excludes_us:
            return self.grow((), (sender,)) if sender in joined else []
        if self.is_failed(sender) or self._is_too_large(proposal):
            return []
        denied = self._denied(proposal)
        self.proposals[sender] = proposal  # also what is denied: it is not said again if we agree
        if denied and sender not in joined:
            return []
        hands_over = self.options.merge != "none"  # a repeated view is for states only
        if hands_over and not proposal.failed and all(of == self.cid for _, of in proposal.joined):
            self.repeat()
        return self.grow(proposal.joined, (node for node in proposal.failed if node not in denied))

    def _denied(self, proposal: Proposal) -> list[NodeId]:
        """Those who come with us from here, and of whom a candidate says that they have failed."""
        if proposal.cid == self.cid:
            return []
        joined = self.suggestion.joined
        newest = {node.name: node for node, _ in proposal.joined}  # older ones come first
        return [
            node
            for node in proposal.failed
            if joined.get(node) == self.cid
            and not self.is_failed(node)
            and newest.get(node.name, node) <= node
        ]

    def _is_too_large(self, proposal: Proposal) -> bool:
        """Whether the next view would have too many members."""
        all_joined = {**dict(proposal.joined), **self.suggestion.joined}
        failed = {*proposal.failed, *self.suggestion.failed}
        return sum(node not in failed for node in all_joined) > LARGEST_GROUP

    # --- decisions ---------------------------------------------------------------------------

    def decide(self) -> Decision | None:
        """What our latest proposal has decided."""
        if self.decision is None and self.stage == 2 and not self.dirty:
            own = self.proposals[self.me]
            self.decision = decide(self.cid, self.members, own, self.proposals)
        return self.decision

    def lacking(self, graph: CausalGraph, decision: Decision) -> bool:
        return any(
            received < up_to for received, up_to in zip(graph.received, decision.cut, strict=True)
        )

    def is_contradictory(self, graph: CausalGraph, decision: Decision) -> bool:
        """Whether all that we lack is held, and waits for what never comes: its origin has told
        others another event of that number."""
        return all(
            seq in graph.hold[place]
            for place, (received, up_to) in enumerate(
                zip(graph.received, decision.cut, strict=True)
            )
            for seq in range(received + 1, up_to + 1)
        )

    def contradicting(self, graph: CausalGraph, decision: Decision) -> list[NodeId]:
        """Those who come along, and whose events follow more than they and all others have."""
        return [
            self.members[place]
            for place, (hold, up_to) in enumerate(zip(graph.hold, decision.cut, strict=True))
            if self.members[place] in decision.came_with
            and not all(
                seq > up_to or all(map(le, cast.vector, decision.cut)) for seq, cast in hold.items()
            )
        ]

    def helpers(
        self, graph: CausalGraph, decision: Decision, time: int
    ) -> list[tuple[NodeId, int, int, int]]:
        """Whom to ask now for what we lack: (whom, place of the origin, first, last)."""
        wanted = []
        pause = max(3 * self.options.prompt_after, self.options.stage_limit // 8)
        for place, (received, up_to) in enumerate(zip(graph.received, decision.cut, strict=True)):
            if received >= up_to or self.members[place] in decision.came_with:
                continue  # what comes along sends is under way
            missing = [
                seq for seq in range(received + 1, up_to + 1) if seq not in graph.hold[place]
            ]
            asked = self.asked.get(place)
            if not missing or (asked is not None and time < asked[1] + pause):
                continue
            able = [
                node
                for node in decision.came_with
                if node != self.me and self.proposals[node].received[place] >= up_to
            ]
            after = able.index(asked[0]) + 1 if asked is not None else 0
            helper = able[after % len(able)]
            self.asked[place] = helper, time
            wanted.append((helper, place, missing[0], missing[-1]))
        return wanted

    def ready(
        self, group: str, graph: CausalGraph, decision: Decision, lineage: Lineage | None
    ) -> Ready:
        """We have everything: what we know of those that do not come along."""
        known = tuple(
            GoneMember(node, graph.acks[place], graph.high_of(place))
            for place, node in enumerate(self.members)
            if node not in decision.came_with
        )
        ready = Ready(group, self.cid, decision.id, known, lineage)
        self.readied[decision.id] = decision
        self.readies[self.me] = ready
        return ready

    def joint(self) -> tuple[Decision, Joint] | None:
        """What is to be installed, if all are ready for our latest decision."""
        decision = self.decision
        if decision is None or self.dirty or decision.id not in self.readied:
            return None
        for node in decision.members:
            ready = self.readies.get(node)
            if ready is None or ready.decision != decision.id:
                return None
        return decision, joint_knowledge(decision.sides, self.readies)

    # --- time --------------------------------------------------------------------------------

    def late(
        self,
        time: int,
        last_sign: Callable[[NodeId], int],
        view_of: Callable[[NodeId], tuple[NodeId, ...]],
    ) -> list[NodeId]:
        """Members that have failed, because a stage has taken them too long. `view_of`: whom a
        candidate said to be in its view."""
        if self.stage != 2 or self.dirty:
            return []
        limit = self.options.stage_limit
        return [
            node
            for node, count in self._awaited().items()
            if self._is_over(node, count * limit, time)
            and (
                2 * (time - last_sign(node)) >= limit
                or self._is_over(node, limit_of_link(limit), time)
                or any(map(self.is_failed, view_of(node)))
            )
        ]

    def _awaited(self) -> dict[NodeId, int]:
        """Those that have not agreed yet or, when all have, are not ready or have not sent what we
        asked for: how many stage limits each of them has."""
        own, decision = self.proposals[self.me], self.decision
        accepted = [node for node in self.suggestion.accepted if node != self.me]
        if decision is None:
            return {node: 1 for node in accepted if not self._agrees(node, own)}
        is_ready = decision.id in self.readied
        awaited = {
            node: 2 if is_ready else 4
            for node in accepted
            if node not in self.readies or self.readies[node].decision != decision.id
        }
        if not is_ready:
            awaited |= {helper: 2 for helper, _ in self.asked.values()}
        return awaited

    def doubtful(self, time: int) -> list[NodeId]:
        """Those that are probed now, for we have waited for them for long."""
        if self.stage != 2 or self.dirty or time < self.probe_at:
            return []
        self.probe_at = time + self.options.stage_limit // PROBES
        return list(self._awaited())

    def _agrees(self, node: NodeId, own: Proposal) -> bool:
        found = self.proposals.get(node)
        return (
            found is not None
            and found.cid == self.suggestion.joined[node]
            and found.failed == own.failed
            and found.joined == own.joined
        )

    def _is_over(self, node: NodeId, limit: int, time: int) -> bool:
        halves = 3 if node < self.me else 2
        return 2 * (time - self.proposed_at) >= halves * limit

    def deadline(self, time: int) -> int | None:
        """When time itself changes something next."""
        if self.stage == 1:
            return self.court_until
        if self.dirty:
            return self.proposed_at + self.options.propose_every
        if self.stage < 2:
            return None
        if self.decision is not None and self.asked:
            return min(self.probe_at, time + self.options.stage_limit // 8)
        return self.probe_at
