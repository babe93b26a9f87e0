"""`ordercast log`: look at the durable log of a group, and mend it.

verify says of each segment what is whole, torn or lost. show prints entries and states. repair cuts
off what is torn, makes indexes again and marks what stays lost; it needs the node to be stopped and
destroys nothing that can be read. FOLDER is the folder of one log.
"""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ordercast.errors import DiskError, UsageError
from ordercast.kernel.log import At, Bad, Entry
from ordercast.store.group_log.inspection import (
    LogState,
    SegmentState,
    found_to_read,
    look_at,
)
from ordercast.store.group_log.mending import mend
from ordercast.store.group_log.view import LogView

WHOLE, LOST = 0, 1
"""Exit codes: everything can be read; something is lost or damaged."""
_SHOWN_LOST = 20
_READ_BYTES = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="WHAT", required=True)
    verify = commands.add_parser("verify", help="what of each segment is whole, torn or lost")
    verify.set_defaults(look=_verify)
    show = commands.add_parser("show", help="print entries and states")
    show.set_defaults(look=_show)
    show.add_argument("--first", type=int, default=0, metavar="POSITION", help="from here on")
    show.add_argument("--count", type=int, metavar="N", help="so many entries at the most")
    show.add_argument("--origin", metavar="NAME", help="only entries of this node")
    show.add_argument("--states", action="store_true", help="states instead of entries")
    repair = commands.add_parser("repair", help="mend what can be mended; stop the node first")
    repair.set_defaults(look=_repair)
    for one in (verify, show, repair):
        one.add_argument("folder", type=Path, metavar="FOLDER", help="the folder of one log")
        one.add_argument("--json", action="store_true", help="one JSON object a line")


def run(arguments: argparse.Namespace) -> int:
    try:
        code: int = arguments.look(arguments)
    except DiskError as error:
        raise UsageError(str(error)) from error
    return code


# --- verify and repair ---------------------------------------------------------------------------


def _verify(arguments: argparse.Namespace) -> int:
    state = look_at(arguments.folder)
    _print_state(state, as_json=arguments.json)
    return WHOLE if state.is_whole else LOST


def _repair(arguments: argparse.Namespace) -> int:
    done = mend(arguments.folder)
    if arguments.json:
        print(json.dumps({"done": done}))
    else:
        print(*(done or ["nothing was to be mended"]), sep="\n")
    state = look_at(arguments.folder)
    _print_state(state, as_json=arguments.json)
    return LOST if any(segment.lost for segment in state.segments) or state.notes else WHOLE


def _print_state(state: LogState, *, as_json: bool) -> None:
    if as_json:
        for segment in state.segments:
            print(json.dumps(_segment_as_json(segment)))
        rest = {"notes": state.notes, "caches": state.caches}
        print(json.dumps({"group": state.group, "floor": state.floor, "tail": state.tail, **rest}))
        return
    print(
        f"group {state.group or 'unknown'}, log {state.identity:016x}: "
        f"{state.tail - state.floor} entries, {_range(state.floor, state.tail)}"
    )
    for segment in state.segments:
        print(f"{segment.path.name}  {_range(segment.first, segment.end)}  {_said(segment)}")
        for position, bad in segment.lost[:_SHOWN_LOST]:
            print(f"  position {position} is lost: {_event(bad)}")
        if len(segment.lost) > _SHOWN_LOST:
            print(f"  and {len(segment.lost) - _SHOWN_LOST} more")
        for damage in segment.damage[:_SHOWN_LOST]:
            print(f"  damaged: {damage}")
    for note in state.notes:
        print(note)
    for cache in state.caches:
        print(f"{cache}: it is a cache, and will be made again")


def _range(first: int, end: int) -> str:
    return f"positions {first} to {end - 1}" if end > first else f"no entries, next {first}"


def _said(segment: SegmentState) -> str:
    parts = [f"{len(segment.lost)} lost"] if segment.lost else []
    if segment.repaired:
        parts.append(f"{segment.repaired} put back")
    if segment.damage:
        parts.append(f"{len(segment.damage)} places damaged")
    if segment.torn:
        parts.append(f"a torn tail of {segment.torn} bytes")
    return ", ".join(parts) or "whole"


def _event(bad: Bad) -> str:
    if not bad.number:
        return "nobody knows what was there"
    name, birth = bad.stream
    return f"event {bad.number} of {name or 'an unknown node'}, log {birth:016x}"


def _segment_as_json(segment: SegmentState) -> dict[str, Any]:
    lost = [
        {"position": at, "origin": bad.stream[0], "birth": bad.stream[1], "number": bad.number}
        for at, bad in segment.lost
    ]
    return {
        "segment": segment.path.name,
        "first": segment.first,
        "end": segment.end,
        "lost": lost,
        "put_back": segment.repaired,
        "damaged": segment.damage,
        "torn": segment.torn,
    }


# --- show ----------------------------------------------------------------------------------------


def _show(arguments: argparse.Namespace) -> int:
    found = found_to_read(arguments.folder)
    if arguments.states:
        for body in found.states:
            print(json.dumps(msgspec.msgpack.decode(body), default=_text))
        return WHOLE
    is_whole = True
    shown = 0
    for position, entry in _entries(found.view, max(arguments.first, found.view.floor)):
        if arguments.count is not None and shown >= arguments.count:
            break
        is_whole &= isinstance(entry, Entry)
        name = entry.origin if isinstance(entry, Entry) else entry.stream[0]
        if arguments.origin is None or name == arguments.origin:
            shown += 1
            print(_as_json(position, entry) if arguments.json else _as_line(position, entry))
    return WHOLE if is_whole else LOST


def _entries(view: LogView, position: int) -> Iterator[tuple[int, Entry | Bad]]:
    while True:
        first, entries, _ = view.read(At(position), _READ_BYTES)
        if not entries:
            return
        yield from enumerate(entries, first)
        position = first + len(entries)


def _as_line(position: int, entry: Entry | Bad) -> str:
    if isinstance(entry, Bad):
        return f"{position}  lost: {_event(entry)}"
    origin = f"{entry.origin}:{entry.number}"
    if entry.is_gap:
        return f"{position}  {origin}  gap after {entry.prev}"
    reply = f"  reply to {entry.reply.origin}:{entry.reply.number}" if entry.reply else ""
    texts = " ".join(map(_text, entry.payloads))
    return f"{position}  {origin}{reply}  {len(entry.payloads)} messages  {texts:.60}"


def _as_json(position: int, entry: Entry | Bad) -> str:
    if isinstance(entry, Bad):
        (name, birth), number = entry.stream, entry.number
        found: dict[str, Any] = {"lost": True, "origin": name, "birth": birth, "number": number}
    else:
        found = {
            "origin": entry.origin,
            "birth": entry.birth,
            "number": entry.number,
            "prev": entry.prev,
            "via": entry.via,
            "gap": entry.is_gap,
            "reply": entry.reply and [entry.reply.origin, entry.reply.birth, entry.reply.number],
            "at": entry.at,
            "payloads": [_text(payload) for payload in entry.payloads],
        }
    return json.dumps({"position": position, **found})


def _text(data: bytes) -> str:
    """As text if it is some; otherwise in base 64."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode()
    return text if text.isprintable() else "base64:" + base64.b64encode(data).decode()
