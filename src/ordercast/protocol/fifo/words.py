"""The wording of fifo groups in interaction files."""

from __future__ import annotations

from typing import Any

from ordercast.kernel.family import Words
from ordercast.kernel.wording import value_text
from ordercast.protocol.fifo.packets import Alive, Begin, Cut, Data, Need, Roster, Start, State


def _state(member: Any) -> list[str]:
    forming = f", forming for {member.forming} ticks more" if member.forming else ""
    window = f"window {member.unstable.count} of {member.options.window}"
    return [
        f"{member.me} has {value_text(member.peers.present)} present, {window}{forming}",
        *(
            f"{member.me} has {stream.origin} up to {stream.received_up_to}, "
            f"holds {value_text([data.number for data in stream.held.after(0)])}"
            for stream in member.streams.by_origin.values()
        ),
    ]


def _cut(cut: Cut) -> str:
    return f"[{' '.join(f'{origin}:{up_to}' for origin, up_to in cut)}]"


WORDS = Words(
    {
        Data: lambda data: f"{data.origin}:{data.number}",
        Start: lambda start: f"{start.origin} after {start.after}",
        Begin: lambda begin: f"{begin.origin} after {begin.after}",
        Roster: lambda roster: (
            f"{value_text(roster.members)}{'' if roster.formed else ' without a view'}"
            f"{f' awaits {value_text(roster.away)}' if roster.away else ''}"
        ),
        Alive: lambda alive: f"has {_cut(alive.received)} hears {value_text(alive.hears)}",
        Need: lambda need: f"up to {_cut(need.after)} at least",
        State: lambda state: f"up to {_cut(state.cut)}",
    },
    _state,
)
