"""The wording of feeds in interaction files.

A beat is `1.n1#0.7`: its epoch, its root and the count. A session is `n2#0/1`: who opened it, and
its count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ordercast.kernel.family import Words
from ordercast.kernel.log import Appended, Entry, Repaired
from ordercast.kernel.wording import event_text, value_text
from ordercast.protocol.hpp import packets
from ordercast.protocol.hpp.packets import Beat, Digest, SessionId


def _state(member: Any) -> list[str]:
    log, edges, hierarchy = member.log, member.edges, member.hierarchy
    parent = edges.parent
    standing = f"below {parent.peer}" if parent else "root" if hierarchy.is_root else "orphan"
    children = " ".join(str(edge.peer) for edge in edges.children) or "nobody"
    return [
        f"{member.me} is {standing}, beat {_beat(hierarchy.beat)}, above {children}",
        f"{member.me} has log {log.identity} from {log.floor} to {log.tail}, "
        f"{len(log.vector)} streams",
    ]


def _beat(beat: Beat) -> str:
    return f"{beat.epoch}.{beat.root}#{beat.incarnation}.{beat.count}"


def _session(session: SessionId) -> str:
    return f"{session.opener.name}#{session.opener.incarnation}/{session.count}"


def _digest(resume: int | None, digest: Digest | None) -> str:
    if resume is not None:
        return f"resume at {resume}"
    if digest is None:
        return "has nothing"
    if digest.hashes is not None:
        return f"has {sum(map(bool, digest.hashes))} hashes"
    return f"has {len(digest.numbers)} streams"


def _entry(entry: Entry) -> str:
    name = event_text(entry.origin, entry.number)
    if entry.is_gap:
        return f"gap up to {name}"
    reply = f" to {event_text(entry.reply.origin, entry.reply.number)}" if entry.reply else ""
    return f"{name}{reply} {value_text(entry.payloads)}"


def _entries(items: Iterable[Entry]) -> str:
    return ", ".join(map(_entry, items)) or "nothing"


def _names(names: Iterable[str] | None) -> str:
    return "unchanged" if names is None else " ".join(names) or "nobody"


WORDS = Words(
    {
        packets.Seek: lambda p: f"{_beat(p.beat)}{' urgent' if p.urgent else ''}",
        packets.Offer: lambda p: (
            f"{_beat(p.beat)}, log {p.log}, "
            f"{'room' if p.room else f'no room, children {_names(p.children)}'}"
        ),
        packets.Join: lambda p: (
            f"{_session(p.session)} at {_beat(p.beat)}, log {p.log}, {_digest(p.resume, p.digest)}"
        ),
        packets.Welcome: lambda p: (
            f"{_session(p.session)} at {_beat(p.beat)}, log {p.log}, {_digest(p.resume, p.digest)}"
        ),
        packets.Drop: lambda p: _session(p.session),
        packets.Closed: lambda p: f"{_session(p.session)}{' forget' if p.forget else ''}",
        packets.Pulse: lambda p: (
            f"{_beat(p.beat)}, path {_names(p.path)}, siblings {_names(p.siblings)}"
        ),
        packets.Entries: lambda p: f"{_session(p.session)} to {p.through}: {_entries(p.items)}",
        packets.Ack: lambda p: (
            f"{_session(p.session)} to {p.through}"
            f"{f', {p.rumour.teller} has {_beat(p.rumour.beat)}' if p.rumour else ''}"
        ),
        packets.AskHashes: lambda p: f"level {p.level}, nodes {value_text(p.nodes)}",
        packets.Hashes: lambda p: f"level {p.level}, {len(p.branches)} nodes",
        packets.Leaves: lambda p: f"leaves {value_text(p.leaves)}, {len(p.numbers)} streams",
        packets.Fetch: lambda p: ", ".join(event_text(e.origin, e.number) for e in p.events),
        packets.Fetched: lambda p: _entries(p.items),
        packets.Correspondent: lambda p: (
            f"log {p.log}: processed to {p.through}, acknowledged to {p.acked}"
            f"{', held' if p.held else ''}"
        ),
        packets.LastParent: lambda p: f"log {p.log}",
        Appended: lambda p: _entry(p.entry),
        Repaired: lambda p: f"{p.position}: {_entry(p.entry)}",
    },
    _state,
)
