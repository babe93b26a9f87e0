"""How the lines of interaction files read (`interaction.py`): what is said of each thing.

A family says in `Family.words` how its packets read.
"""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.kernel.log import At, Place, Reference
from ordercast.kernel.step import Note
from ordercast.kernel.wording import (
    PacketWords,
    columns_text,
    event_text,
    in_group,
    notification_text,
    packet_text,
    value_text,
)
from ordercast.testing.actor import Logged, Persisted, Posted, ReadWanted, Received, TimerSet
from ordercast.types import (
    EVENT_COLUMNS,
    Difference,
    Event,
    Invitation,
    Merged,
    NodeId,
    Partitioned,
    Primary,
    Refused,
    SideStates,
    StateGiven,
    StateLost,
    StateWanted,
    Updating,
    View,
    Waiting,
)
from ordercast.units import Duration


def logged_text(who: NodeId, what: Logged, words: PacketWords) -> str:
    match what:
        case Received(sender, packet, channel):
            return f"{who} ← {sender} {channel.value} {packet_text(packet, words)}"
        case Posted(to, packet, channel):
            return f"{who} → {','.join(map(str, to))} {channel.value} {packet_text(packet, words)}"
        case Persisted(record):
            return f"{who} persists {packet_text(record, words)}"
        case ReadWanted(recall):
            return f"{who} reads {_place(recall.place)}"
        case TimerSet(timer, after):
            return f"{who} timer {value_text(timer)} {_when(after)}"
        case View():
            kind = f"{'transitional ' * what.transitional}view"
            return f"{who} {kind} {_names(what.members)}{in_group(what.group)}"
        case Merged(sides=sides):
            return f"{who} merged {' '.join(map(_names, sides))}{in_group(what.group)}"
        case Difference():
            texts = [event_text(event.origin.name, event.number) for event in what.events]
            lost = f", {what.forgotten} forgotten" * bool(what.forgotten)
            lost += f", {_names(what.unheard)} unheard" * bool(what.unheard)
            lost += "" if what.reaches_back else ", and what was before"
            told = f"{_names(what.side)} delivered {' '.join(texts) or 'nothing'} apart"
            return f"{who} hears that {told}{lost}"
        case Event():
            fields = {name: getattr(what, name) for name in EVENT_COLUMNS}
            fields["service"] = what.service or None
            fields["reply"] = what.reply and event_text(*what.reply)
            named = f"{event_text(what.origin.name, what.number)} {value_text(what.payloads)}"
            return f"{who} delivers {named}{columns_text(fields, words)}{in_group(what.group)}"
        case Partitioned(gone=gone):
            return f"{who} goes on without {_names(gone)}"
        case Invitation(initiator=initiator, formation=formation, members=members):
            return f"{who} is invited by {initiator} to {formation} {_names(members)}"
        case Refused(why=why):
            return f"{who} is notified: {why}"
        case Waiting(why=""):
            return f"{who} goes on"
        case Waiting(on=on, why=why):
            return f"{who} waits for {' '.join(on) or 'somebody'}: {why}"
        case StateWanted():
            return f"{who} is asked for its state"
        case Updating(cause=cause, ticket=ticket):
            return f"{who} is notified: ticket {ticket} {cause}"
        case SideStates(states=states):
            each = [f"{_names(one.side)} {value_text(one.state)}" for one in states]
            return f"{who} is given the states {', '.join(each)}"
        case StateLost(givers=givers, why=why):
            return f"{who} is notified that the state of {_names(givers)} is lost: {why}"
        case StateGiven():
            return f"{who} is given the state {value_text(what.state)}"
        case Note(kind, columns):
            left = {name: value for name, value in columns.items() if name != "group"}
            number = left.get("number")
            if isinstance(number, int) and "origin" in left:
                kind = f"{kind} {event_text(str(left.pop('origin')), number)}"
                del left["number"]
            return f"{who} notes {kind}{columns_text(left, words)}"
    said = _primary(what) if isinstance(what, Primary) else notification_text(what, words)
    return f"{who} is notified: {said}{in_group(what.group)}"


def _primary(news: Primary) -> str:
    members = _names(news.view.members)
    if news.is_primary:
        return f"{members} is the primary view, and up to date are {' '.join(news.up_to_date)}"
    return f"{members} is not the primary view: {news.why}"


def _place(place: Place) -> str:
    match place:
        case At(position=position):
            return f"its log from {position} on"
        case Reference(origin=origin, number=number):
            return event_text(origin, number)
    return "its log from what the other lacks on"


def _when(after: int | None) -> str:
    if after is None:
        return "off"
    exact = str(Duration(after))
    return f"in {exact if len(exact) <= 6 else f'{after / 1e6:.3g}ms'}"


def _names(nodes: Sequence[NodeId]) -> str:
    return f"{{{' '.join(map(str, nodes))}}}"
