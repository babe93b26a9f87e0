"""Packets that no member that follows the rules would send.

They are rejected before anything has changed. What an honest backlog can bring is dropped quietly
instead: packets of former configurations, and of members that do not know yet that they are
excluded.

A member that tells two others different things is not found out: only what a packet says against
what its own sender said before is looked at, so that nobody is refused for the lies of a third one.
"""

from __future__ import annotations

from operator import le
from typing import TYPE_CHECKING

from ordercast.errors import PeerError
from ordercast.kernel.clocks import Vector
from ordercast.kernel.packet import Packet
from ordercast.protocol.primary.packets import VoterReport, VoterStanding
from ordercast.protocol.primary.voter import refuse_report
from ordercast.protocol.transis.acquaintances import KnownNames
from ordercast.protocol.transis.change import ConfigurationChange
from ordercast.protocol.transis.graph import WINDOWS_SENT, CausalGraph
from ordercast.protocol.transis.packets import (
    Cast,
    ConfigurationId,
    Court,
    Fetch,
    Fetched,
    GoneMember,
    Hello,
    Installed,
    Leave,
    Lineage,
    Probe,
    Proposal,
    Ready,
    Status,
    Summary,
)
from ordercast.types import NodeId

if TYPE_CHECKING:
    from ordercast.protocol.transis.configuration import OpenConfiguration

LARGEST_CLIMB = 1 << 32
"""Heights of configurations grow by one a change, and numbers of attempts by one each. Their
greatest one counts, so without this limit a member at the end of all numbers would take everybody
along."""


def refuse_cast(graph: CausalGraph, sender: NodeId, place: int, cast: Cast) -> None:
    """An event that came by the link of its origin."""
    vector = cast.vector
    seq, height, number = graph.arrived[place]
    if len(vector) != len(graph.members) or vector[place] != cast.seq:
        raise PeerError(f"{sender} sent an event whose vector does not fit its view")
    if vector[graph.me] > graph.received[graph.me]:
        raise PeerError(f"{sender} follows what {graph.members[graph.me]} never sent")
    if cast.seq != seq + 1 or cast.number <= number:
        raise PeerError(f"{sender} sent event {cast.seq} after event {seq}")
    if cast.height <= height:
        raise PeerError(f"{sender} sent an event of height {cast.height} after {height}")
    _refuse_height(sender, cast.height, vector)
    if cast.height <= graph.clock:  # else it is above all that we have
        _refuse_depth(graph, sender, cast)
    if cast.seq > graph.acknowledged[place] + WINDOWS_SENT * graph.window:
        raise PeerError(f"{sender} sends more than its window")
    _refuse_reach(graph, sender, vector)


def refuse_loose_cast(graph: CausalGraph, sender: NodeId, place: int, cast: Cast) -> None:
    """An event that its origin sent by multicast: gaps and repetitions are ordinary."""
    vector = cast.vector
    if len(vector) != len(graph.members) or vector[place] != cast.seq:
        raise PeerError(f"{sender} sent an event whose vector does not fit its view")
    if cast.seq <= graph.received[place]:
        return  # we have it
    if vector[graph.me] > graph.received[graph.me]:
        raise PeerError(f"{sender} follows what {graph.members[graph.me]} never sent")
    _refuse_height(sender, cast.height, vector)
    if cast.height <= graph.clock:  # else it is above all that we have
        _refuse_depth(graph, sender, cast)
    _refuse_reach(graph, sender, vector)


def _refuse_depth(graph: CausalGraph, sender: NodeId, cast: Cast) -> None:
    """An event is higher than those before it, as far as they are the last ones that we have. One
    whose origin may have told two members different heights does not count."""
    me = graph.me
    if cast.vector[me] >= graph.received[me] and graph.top[me] >= cast.height:
        raise PeerError(
            f"{sender} sent an event of height {cast.height} that follows {graph.top[me]}"
        )


def _refuse_height(sender: NodeId, height: int, vector: Vector) -> None:
    """Heights grow by one an event, so none is above the number of events that its sender has. All
    who see to that keep to it themselves, whatever heights a third one makes up."""
    if height > sum(vector):
        raise PeerError(f"{sender} has {sum(vector)} events, and none of them has height {height}")


def _refuse_reach(graph: CausalGraph, sender: NodeId, vector: Vector) -> None:
    """No member has more of a stream than its origin could send without our acknowledgement."""
    more = WINDOWS_SENT * graph.window
    if max(vector) <= min(graph.acknowledged) + more:
        return  # as it is nearly always
    for node, up_to, acknowledged in zip(graph.members, vector, graph.acknowledged, strict=True):
        if up_to > acknowledged + more:
            raise PeerError(f"{sender} has {up_to} events of {node}, more than it can have sent")


def refuse_status(graph: CausalGraph, sender: NodeId, place: int, status: Status) -> None:
    vector = status.vector
    if len(vector) != len(graph.members) or vector[place] != status.sent:
        raise PeerError(f"{sender} sent an acknowledgement that does not fit its view")
    if vector[graph.me] > graph.received[graph.me]:
        raise PeerError(f"{sender} acknowledges what {graph.members[graph.me]} never sent")
    _refuse_height(sender, status.clock, vector)
    if status.sent < graph.arrived[place][0] or status.clock < graph.arrived[place][1]:
        raise PeerError(f"{sender} says that it has sent less than it has")
    _refuse_reach(graph, sender, vector)


def refuse_loose_status(graph: CausalGraph, sender: NodeId, place: int, status: Status) -> None:
    """One by multicast: it may be older than what came before."""
    vector = status.vector
    if len(vector) != len(graph.members) or vector[place] != status.sent:
        raise PeerError(f"{sender} sent an acknowledgement that does not fit its view")
    if vector[graph.me] > graph.received[graph.me]:
        raise PeerError(f"{sender} acknowledges what {graph.members[graph.me]} never sent")
    _refuse_height(sender, status.clock, vector)
    _refuse_reach(graph, sender, vector)


def refuse_summary(graph: CausalGraph, gathers: bool, sender: NodeId, summary: Summary) -> None:
    count, me = len(graph.members), graph.me
    if not gathers:
        raise PeerError(f"{sender} sums up what members of so small a view tell each other")
    if not len(summary.sent) == len(summary.clocks) == len(summary.stable) == count:
        raise PeerError(f"{sender} sent a summary that does not fit its view")
    if max(summary.sent[me], summary.stable[me]) > graph.sent:
        raise PeerError(f"{sender} has what {graph.members[me]} never sent")
    _refuse_height(sender, max(summary.clocks), summary.sent)
    if not all(map(le, summary.stable, graph.received)):
        raise PeerError(f"{sender} says that all have what {graph.members[me]} lacks")
    _refuse_reach(graph, sender, summary.sent)


def refuse_rare(
    graph: CausalGraph, change: ConfigurationChange, sender: NodeId, packet: Packet
) -> None:
    """Any other packet of a link, but for `Fetch` and `Fetched`. Its configuration was looked at
    before."""
    match packet:
        case Proposal():
            _refuse_proposal(graph, change, sender, packet)
        case Leave():
            if packet.sent < graph.arrived[graph.places[sender]][0]:
                raise PeerError(f"{sender} leaves and says that it has sent less than it has")
        case Ready():
            proposal = change.proposals.get(sender)
            if proposal is not None and packet.decision.rep not in dict(proposal.joined):
                raise PeerError(f"{sender} is ready for a view of {packet.decision.rep}")
            if (packet.lineage is None) != (change.options.merge == "none"):
                raise PeerError(f"{sender} does not say which state it has, or need not")
            if packet.lineage is not None:
                _refuse_lineage(change, sender, sender, packet.lineage)
            if packet.cid == change.cid:
                _refuse_known(graph, sender, packet.known)
                if proposal is not None and proposal.sent < graph.arrived[graph.places[sender]][0]:
                    raise PeerError(f"{sender} is ready, and has sent more than it proposed")
        case Installed(cid=cid) if cid in change.readied:
            if change.options.merge != "none":
                said = [node for side in packet.joint for node, _ in side.lineages]
                if sorted(said) != list(change.readied[packet.cid].members):
                    raise PeerError(f"{sender} does not say which states there are")
                for side in packet.joint:
                    for node, lineage in side.lineages:
                        _refuse_lineage(change, sender, node, lineage)
            if sender in change.readied[cid].came_with:  # others pass on what they cannot judge
                for side in packet.joint:
                    if side.side == change.cid:
                        _refuse_known(graph, sender, side.known)


def _refuse_lineage(
    change: ConfigurationChange, sender: NodeId, of: NodeId, lineage: Lineage
) -> None:
    if (lineage.report is None) != (change.options.quorum == "none"):
        raise PeerError(f"{sender} does not say what the state of {of} covers, or need not")
    if lineage.report is not None:
        refuse_report(of, lineage.report)


def _refuse_known(graph: CausalGraph, sender: NodeId, known: tuple[GoneMember, ...]) -> None:
    count = len(graph.members)
    for one in known:
        if one.node not in graph.places or len(one.acks) != count:
            raise PeerError(f"{sender} knows of {one.node}, which is in another view")


def _refuse_proposal(
    graph: CausalGraph, change: ConfigurationChange, sender: NodeId, packet: Proposal
) -> None:
    joined = dict(packet.joined)
    if joined.get(sender) != packet.cid or sender in packet.failed:
        raise PeerError(f"{sender} proposes a view without itself")
    if len(joined) != len(packet.joined) or list(packet.joined) != sorted(packet.joined):
        raise PeerError(f"{sender} proposes a list that is not sorted")
    if list(packet.failed) != sorted(set(packet.failed)):
        raise PeerError(f"{sender} names failed members that are not sorted")
    if not all(node in joined for node in packet.failed):
        raise PeerError(f"{sender} says that a member failed which nobody wanted")
    before = change.proposals.get(sender)
    if before is not None and packet.serial <= before.serial:
        raise PeerError(f"{sender} repeats proposal {packet.serial}")
    if before is not None and packet.cid == before.cid:
        less = [node for node in before.failed if node not in packet.failed]
        less += [node for node, cid in before.joined if node not in joined or joined[node] < cid]
        if less:
            raise PeerError(f"{sender} takes back what it proposed of {less[0]}")
        if not all(map(le, before.received, packet.received)):
            raise PeerError(f"{sender} takes back that it has received events")
    if packet.cid == change.cid:
        place = graph.places.get(sender)
        if place is None or len(packet.received) != len(graph.members):
            raise PeerError(f"{sender} proposes from a view that it is not in")
        if packet.received[place] != packet.sent:
            raise PeerError(f"{sender} has received {packet.received[place]} of its own events")
        if packet.received[graph.me] > graph.sent:
            raise PeerError(f"{sender} has received what {change.me} never sent")
        if packet.sent < graph.arrived[place][0]:
            raise PeerError(f"{sender} proposes and says that it has sent less than it has")
        _refuse_reach(graph, sender, packet.received)


def refuse_fetch(
    graph: CausalGraph, change: ConfigurationChange, sender: NodeId, packet: Fetch
) -> None:
    """Where only what a proposal of ours has can be missing."""
    refuse_range(graph, sender, packet)
    own = change.proposals.get(change.me)
    if own is None or packet.last > own.received[graph.places[packet.origin]]:
        raise PeerError(f"{sender} asks for what {change.me} did not say it has")


def refuse_range(graph: CausalGraph, sender: NodeId, packet: Fetch) -> None:
    if packet.origin not in graph.places or packet.first > packet.last:
        raise PeerError(f"{sender} asks for events of {packet.origin}, of another view")


def refuse_fetched(graph: CausalGraph, sender: NodeId, packet: Fetched) -> None:
    cast, place = packet.cast, graph.places.get(packet.origin)
    if place is None or place == graph.me or len(cast.vector) != len(graph.members):
        raise PeerError(f"{sender} passes on an event of {packet.origin}, of another view")
    if cast.vector[place] != cast.seq or cast.vector[graph.me] > graph.sent:
        raise PeerError(f"{sender} passes on an event whose vector does not fit its view")
    _refuse_height(sender, cast.height, cast.vector)
    _refuse_reach(graph, sender, cast.vector)


def refuse_unasked(graph: CausalGraph, sender: NodeId, packet: Fetched) -> None:
    """Where only events of members that do not come along can be missing."""
    if graph.places[packet.origin] not in graph.frozen:
        raise PeerError(f"{sender} passes on an event of {packet.origin}, which comes along")


def refuse_climbers(height: int, sender: NodeId, packet: Packet) -> None:
    """Configurations far above ours, which no number of changes leads to."""
    named: list[ConfigurationId] = []
    if isinstance(packet, Hello | Probe | Proposal):
        named.append(packet.cid)
    if isinstance(packet, Proposal | Court):
        named += [cid for _, cid in packet.joined]
    for cid in named:
        if cid.height > height + LARGEST_CLIMB:
            raise PeerError(f"{sender} names the view {cid}, far above all others")


def refuse_leaper(own: VoterStanding, sender: NodeId, report: VoterReport) -> None:
    """Attempts at primary views far above ours, which no number of them leads to."""
    standing = report.standing
    number = max(standing.number, standing.last.number)
    if number > max(own.number, own.last.number) + LARGEST_CLIMB:
        raise PeerError(f"{sender} reports attempt {number}, far above all others")


def refuse_strangers(names: KnownNames, sender: NodeId, packet: Packet) -> None:
    """Of a closed group: who is not in its plan."""
    if not names.may_be_member(sender.name):
        raise PeerError(f"{sender} is not a member of {packet.group}")
    told: list[str] = []
    if isinstance(packet, Hello):
        if sender not in packet.members:
            raise PeerError(f"{sender} is in a view without itself")
        if list(packet.members) != sorted(set(packet.members)):
            raise PeerError(f"{sender} names members that are not sorted")
        if packet.cid.rep != packet.members[0]:
            raise PeerError(f"{sender} is in a view of {packet.cid.rep}, which is not its first")
        told = [node.name for node in packet.members]
    elif isinstance(packet, Proposal | Court):
        told = [node.name for node, _ in packet.joined]
    for name in told:
        if name != names.me and not names.may_be_member(name):
            raise PeerError(f"{sender} names {name}, which is not a member of {packet.group}")


def counts(packet: Packet, sender: NodeId, current: OpenConfiguration) -> bool:
    """Whether a packet is about our configuration; others are dropped."""
    change = current.change
    match packet:
        case Hello() | Probe() | Proposal():
            return True
        case Ready():
            is_candidate = change.suggestion.joined.get(sender) == packet.cid
            return is_candidate and not change.is_failed(sender)
        case Installed():
            if change.is_failed(sender):
                return False
            decision = change.readied.get(packet.cid)
            return is_elsewhere(packet, sender, current) or (
                decision is not None and sender in decision.members
            )
    cid = packet.cast.cid if isinstance(packet, Fetched) else getattr(packet, "cid", None)
    if cid != current.cid:
        return False
    if sender not in current.members:
        raise PeerError(f"{sender} is not a member of view {cid} of {packet.group}")
    return True


def is_elsewhere(packet: Installed, sender: NodeId, current: OpenConfiguration) -> bool:
    """Whether a member of our view, or a candidate, has gone to a view that we are not ready for,
    nor have left. If it follows the rules, a third one has told it that we were ready. What it
    casts there we have missed, so we must not follow it later."""
    change = current.change
    if packet.cid == current.cid or packet.cid in change.readied:
        return False
    if sender in current.members:
        return packet.cid.height >= current.cid.height
    known = change.suggestion.joined.get(sender)
    return known is not None and packet.cid.height > known.height
