"""How a session begins: what the other has, and from where on our log is sent to it.

Each side tells the other what it has, in one of three forms.
  Resume  up to which position it has processed our log. Only between a node and its last parent:
          any other place is old, and everything since would come twice.
  Digest  the number of every stream that it has received.
  Hashes  where there are too many streams: the branches of the root of a tree of hashes. The other
          compares them with its own and asks for the branches of those that differ, down to the
          leaves, whose streams are told one by one.

Rules.
 1. What is known of the other only leaves out entries. What the other has more than we know comes
    to it twice, and is dropped.
 2. Of leaves whose hashes are equal, the other has all that was in our log when the comparison
    began: what is below the mark. Later entries of them count as lacking.
 3. With a digest reading begins at the first entry that the other lacks. Streams of which entries
    are lacking that were trimmed here begin with a gap.

Adly, Kumar: HPP, 1994, section 5.3 compares vectors after a recovery only; here every session does.
"""

from __future__ import annotations

from ordercast.errors import PeerError
from ordercast.kernel.log import Knowledge, Recalled
from ordercast.kernel.step import Step
from ordercast.protocol.hpp.edges import Edge
from ordercast.protocol.hpp.options import FeedOptions
from ordercast.protocol.hpp.own_log import OwnLog
from ordercast.protocol.hpp.packets import (
    MOST_PARTS,
    MOST_STREAMS,
    AskHashes,
    Branch,
    Digest,
    Hashes,
    Known,
    Leaves,
)
from ordercast.protocol.hpp.propagation import Propagation


class Survey:
    """What is being found out about the other side, level by level."""

    def __init__(self, mark: int, levels: int) -> None:
        self.mark = mark
        self.nodes: list[list[int]] = [[] for _ in range(levels + 1)]  # to ask for, by level
        self.asked: tuple[int, list[int]] | None = None
        self.differing: set[int] = set()  # leaves
        self.numbers: dict[int, int] = {}


class SessionStart:
    def __init__(self, log: OwnLog, propagation: Propagation, options: FeedOptions) -> None:
        self.log = log
        self.propagation = propagation
        self.options = options
        self.surveys: dict[str, tuple[Edge, Survey]] = {}  # by name of the peer
        self.resumed = 0  # sessions, a direction each
        self.compared = 0
        self.descents = 0  # questions about inner nodes of the tree of hashes

    def digest(self) -> Digest:
        """What we have, as it is told."""
        if self.log.is_large:
            return Digest(hashes=self.log.hashes().branches(0, 0))
        return Digest([Known(key, number) for key, number in self.log.vector.items()])

    def begin(self, step: Step, edge: Edge, resume: int | None, digest: Digest | None) -> None:
        """The other said from where on it needs our log."""
        log = self.log
        if resume is not None:
            if log.floor <= resume <= log.tail:
                self.resumed += 1
                self._start_at(edge, resume)
            else:
                edge.failed, edge.forgets = f"position {resume} is not there", True
            return
        self.compared += 1
        if digest is None or digest.hashes is None:
            numbers = {} if digest is None else {each.key: each.number for each in digest.numbers}
            has = numbers.get
            if all(has(key, 0) >= number for key, number in log.vector.items()):
                self._start_at(edge, log.tail)
            else:
                self._read(step, edge, Knowledge(numbers))
            return
        survey = Survey(log.tail, self.options.digest_levels)
        self.surveys[edge.peer.name] = edge, survey
        self._compare(survey, 0, 0, digest.hashes)
        self._ask(step, edge, survey)

    def _start_at(self, edge: Edge, position: int) -> None:
        edge.cursor = edge.acked = edge.said = position
        edge.is_ready = True

    def _read(self, step: Step, edge: Edge, known: Knowledge) -> None:
        edge.known, edge.known_until = known, self.log.tail
        edge.is_reading = True
        self.propagation.recalls += 1
        step.recall(self.log.group, edge.token, known, self.options.chunk)

    def recalled(self, step: Step, edge: Edge, given: Recalled) -> None:
        """The first of what the other lacks was read."""
        self._start_at(edge, given.first)  # perhaps below the floor, if that rose meanwhile
        if given.gaps:
            self.propagation.send_gaps(step, edge, given.gaps)
        self.propagation.recalled(step, edge, given)

    # --- going down the tree -----------------------------------------------------------------

    def _compare(self, survey: Survey, level: int, node: int, hashes: list[int]) -> None:
        tree = self.log.hashes()
        own = tree.branches(level, node)
        for place, (ours, theirs) in enumerate(zip(own, hashes, strict=True)):
            if ours != theirs:
                branch = node * tree.fan_out + place
                survey.nodes[level + 1].append(branch)
                if level + 1 == tree.levels:
                    survey.differing.add(branch)

    def _ask(self, step: Step, edge: Edge, survey: Survey) -> None:
        level = max((at for at, nodes in enumerate(survey.nodes) if nodes), default=0)
        if not level:
            self._surveyed(step, edge, survey)
            return
        nodes = survey.nodes[level][-MOST_PARTS:]
        del survey.nodes[level][-MOST_PARTS:]
        survey.asked = level, nodes
        self.descents += level < self.options.digest_levels
        step.send(edge.peer, AskHashes(self.log.group, edge.session, level, nodes))

    def _surveyed(self, step: Step, edge: Edge, survey: Survey) -> None:
        del self.surveys[edge.peer.name]
        if not survey.differing:
            self._start_at(edge, survey.mark)
            return
        differing, leaves = frozenset(survey.differing), self.options.leaves
        self._read(step, edge, Knowledge(survey.numbers, survey.mark, differing, leaves))

    def _survey_of(self, edge: Edge, level: int, nodes: list[int]) -> Survey:
        """What this answers."""
        found = self.surveys.get(edge.peer.name)
        if found is None or found[0] is not edge or found[1].asked != (level, nodes):
            raise PeerError(f"{edge.peer} answers what nobody asked")
        return found[1]

    def receive_hashes(self, step: Step, edge: Edge, packet: Hashes) -> None:
        survey = self._survey_of(edge, packet.level, [each.node for each in packet.branches])
        if any(len(each.hashes) != self.options.digest_fan_out for each in packet.branches):
            raise PeerError(f"{edge.peer} has another tree of hashes")
        for each in packet.branches:
            self._compare(survey, packet.level, each.node, each.hashes)
        self._ask(step, edge, survey)

    def receive_leaves(self, step: Step, edge: Edge, packet: Leaves) -> None:
        survey = self._survey_of(edge, self.options.digest_levels, packet.leaves)
        if len(survey.numbers) > len(self.log.vector) + (1 << 24):
            raise PeerError(f"{edge.peer} has more streams than there can be")
        survey.numbers.update((each.key, each.number) for each in packet.numbers)
        if not packet.more:
            self._ask(step, edge, survey)

    def answer(self, step: Step, edge: Edge, packet: AskHashes) -> None:
        """The other compares what we have with what it has."""
        options, nodes = self.options, packet.nodes
        if not 0 < packet.level <= options.digest_levels or any(
            node >= options.digest_fan_out**packet.level for node in nodes
        ):
            raise PeerError(f"{edge.peer} asks for nodes that no tree of hashes has")
        group, session, level = self.log.group, edge.session, packet.level
        if level < options.digest_levels:
            tree = self.log.hashes()
            branches = [Branch(node, tree.branches(level, node)) for node in nodes]
            step.send(edge.peer, Hashes(group, session, level, branches))
            return
        found = self.log.vector.within(set(nodes), options.leaves)
        for first in range(0, max(len(found), 1), MOST_STREAMS):
            part = [Known(*pair) for pair in found[first : first + MOST_STREAMS]]
            more = first + MOST_STREAMS < len(found)
            step.send(edge.peer, Leaves(group, session, nodes, part, more))

    def refuse_digest(self, edge_name: str, digest: Digest | None) -> None:
        hashes = None if digest is None else digest.hashes
        if hashes is not None and len(hashes) != self.options.digest_fan_out:
            raise PeerError(f"{edge_name} has another tree of hashes")

    def forget(self, edge: Edge) -> None:
        """The session is over."""
        found = self.surveys.get(edge.peer.name)
        if found is not None and found[0] is edge:
            del self.surveys[edge.peer.name]
