"""A schedule as lines that a person can read, and that can be followed again.

    n1 submits
    n1 → n2: fifo.data n1:1
    n2 timer tick
    n3 crashes
    lost: n1 → n3 fifo.alive

A line names one action among those that are possible in its state. Where several would get the
same line, because two datagrams of one type are on the same way, they are numbered from the
second on: `n1 → n2: fifo.alive [2]`. The order in which they are numbered follows from their
content, so a line means the same in every search.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ordercast.errors import UsageError
from ordercast.kernel.packet import Packet
from ordercast.sim.explore.members import Failure
from ordercast.sim.explore.model import Action, Model, SystemState, Usage
from ordercast.types import COUNTER_BITS


def describe(model: Model, state: SystemState, action: Action) -> str:
    """The line of an action that is possible in a state."""
    return next(line for line, each in _lines(model, state) if each == action)


def follow(
    model: Model, state: SystemState, schedule: Sequence[str]
) -> tuple[list[SystemState], str | None]:
    """The states that a schedule leads through, and what broke at its end, if a machine did."""
    states = [state]
    for place, line in enumerate(schedule):
        possible = dict(_lines(model, states[-1]))
        if line not in possible:
            known = "; ".join(possible)
            raise UsageError(f"line {place + 1}, {line!r}, cannot happen there; what can: {known}")
        after = model.apply(states[-1], possible[line])
        if isinstance(after, Failure):
            return states, after.error
        states.append(after)
    return states, None


def _lines(model: Model, state: SystemState) -> list[tuple[str, Action]]:
    found: list[tuple[str, Action]] = []
    times: dict[str, int] = {}
    for action in model.choices(state, Usage()):
        line = _line(model, state, action)
        times[line] = count = times.get(line, 0) + 1
        found.append((f"{line} [{count}]" if count > 1 else line, action))
    return found


def _line(model: Model, state: SystemState, action: Action) -> str:
    kind, about = action[0], action[1]
    names = model.setting.names
    match kind:
        case "submit":
            several = len(model.setting.groups) > 1
            return f"{names[about]} submits" + (f" to {action[2]}" if several else "")
        case "give":
            return f"{names[about]}: {model.setting.inputs_of(names[about])[action[2]]}"
        case "recall":
            return f"{names[about]} has read its log"
        case "join":
            return f"{names[about]} joins {action[2]}"
        case "timer":
            timer = action[3]
            return f"{names[about]} timer {timer if isinstance(timer, str) else repr(timer)}"
        case "crash" | "restart":
            return f"{names[about]} {kind}{'es' if kind == 'crash' else 's'}"
        case "cut" | "mend":
            pair = " and ".join(names[one] for one in about)
            return f"{'cut' if kind == 'cut' else 'mended'}: {pair}"
        case "link":
            packet = next(packets[0] for way, packets in state.links if way == action[1:])
            return f"{_way(model, *action[1:])}: {_packet(model, packet)}"
        case "break":
            return f"lost: {_way(model, *action[1:])} all that was underway by link"
        case "lose" | "lose-status":
            return f"lost: {_way(model, *about[:2])} {_packet(model, about[2])}"
        case "answer":
            what = f"{_packet(model, about[2])} to {_end(model, about[1])}"
            status = "OK" if action[2] else "not OK"
            return f"{_end(model, about[0])} gets the status {status}: {what}"
    line = f"{_way(model, *about[:2])}: {_packet(model, about[2])}"
    return f"{line}, and once more later" if kind == "double" else line


def _way(model: Model, sender: int, to: int) -> str:
    return f"{_end(model, sender)} → {_end(model, to)}"


def _end(model: Model, code: int) -> str:
    return model.setting.names[~code] if code < 0 else str(model.members.node(code))


def _packet(model: Model, number: int) -> str:
    """The packet's tag, and the event or stream that it is about if it names one."""
    packet: Packet = model.members.things[number]
    tag: Any = packet.__struct_config__.tag
    words = [str(tag or type(packet).__name__)]
    origin, counter = getattr(packet, "origin", None), getattr(packet, "number", None)
    if origin is not None:
        place = f":{counter & (1 << COUNTER_BITS) - 1}" if isinstance(counter, int) else ""
        words.append(f"{origin}{place}")
    return " ".join(words)
