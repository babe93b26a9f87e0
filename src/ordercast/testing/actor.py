"""One process on a stage: the world around its host, and what the log of the stage says of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ordercast.kernel.host import Host
from ordercast.kernel.log import Recall
from ordercast.kernel.packet import Packet
from ordercast.kernel.seat import Seat
from ordercast.kernel.step import Address, Channel, Heard, Output, Sent, Step, Timer
from ordercast.store.memory import SimulatedDisk
from ordercast.types import Event, NodeId

if TYPE_CHECKING:
    from ordercast.testing.stage import Stage


class Received(NamedTuple):
    sender: NodeId
    packet: Packet
    channel: Channel


class Posted(NamedTuple):
    to: tuple[Address, ...]
    packet: Packet
    channel: Channel


class TimerSet(NamedTuple):
    timer: Timer
    after: int | None  # nanoseconds; None: cancelled


class Persisted(NamedTuple):
    record: Packet


class ReadWanted(NamedTuple):
    recall: Recall


Logged: TypeAlias = Received | Persisted | Posted | TimerSet | ReadWanted | Output
"""What the log of a stage holds, each with the incarnation that it happened to."""


class Actor:
    """One process on the stage, and the world around its host."""

    def __init__(self, name: str, stage: Stage) -> None:
        self.node = NodeId(name, -1)
        self.alive = False
        self.disk = SimulatedDisk()
        self.answered = 0  # questions for the application's state
        self.reads: list[tuple[Seat, Recall]] = []  # of logs, that are not answered
        self.stage = stage
        self.host = Host(self)

    def start(self) -> None:
        self.node = NodeId(self.node.name, self.node.incarnation + 1)
        self.alive, self.answered, self.reads = True, 0, []
        for group in self.stage.logged_groups(self.node.name):
            self.disk.open_log(group, self.stage.new_identity)
        self.host = Host(self, observe=self._observe)
        machines = self.stage.build(self.node, self.disk.records())
        for seat in [self.host.seat(machine) for machine in machines]:
            self.host.start(seat, self.stage.now)

    def crash(self) -> None:
        self.alive = False
        self.host.end()
        self.disk.crash()

    def timers(self) -> list[tuple[int, Seat, Timer, int]]:
        """When each timer runs out, and which it is; the next that is due first."""
        found = [
            (due, seat, timer, setting)
            for seat in self.host.seated
            for timer, (setting, due) in seat.timers.items()
        ]
        return sorted(found, key=lambda each: each[0])

    def _observe(self, seat: Seat, step: Step, event: Event | None) -> None:
        log, node = self.stage.log, self.node
        log.extend((node, Persisted(record)) for record in step.records)
        log.extend((node, Posted(to, packet, channel)) for to, packet, channel, _ in step.sent)
        log.extend((node, TimerSet(timer, after)) for timer, after in step.timers)
        log.extend((node, output) for output in step.outputs)
        log.extend((node, ReadWanted(recall)) for recall in step.recalls)

    # --- the world of the host -------------------------------------------------------------------

    def send(self, seat: Seat, sent: Sent) -> None:
        to, packet, channel, tokens = sent
        for address, token in zip(to, tokens, strict=True):
            self.stage.post(self.node, address, packet, channel, token)

    def wake(self, seat: Seat, timer: Timer, setting: int, after: int) -> int:
        return self.stage.now + after

    def cancel(self, alarm: int) -> None:
        """Nothing to do: timers run out when the test says so."""

    def commit(self, records: list[Packet], done: Callable[[], None]) -> None:
        self.disk.append(records)
        self.disk.sync()
        done()

    def recall(self, seat: Seat, recall: Recall) -> None:
        self.reads.append((seat, recall))

    def answer_read(self) -> None:
        """The oldest read of a log comes back."""
        seat, recall = self.reads.pop(0)
        self.host.give(seat, self.disk.logs[recall.group].answer(recall), self.stage.now)

    def hear(self, seat: Seat, output: Heard) -> None:
        """The log has it. Applications answer when the test says so."""

    def stepped(self, seat: Seat) -> None:
        """Tests look for themselves."""

    def broke(self, seat: Seat, error: Exception) -> None:
        raise error

    def trace_time(self) -> int:
        return self.stage.now

    def on_trace_scale(self, local: int) -> int:
        return local
