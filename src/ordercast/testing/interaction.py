"""Interaction files: a conversation on a stage, as commands and what came of them.

    # A comment, which is kept.
    submit n1 a b
    deliver n1 n2
    ----
    n1 → n2 link fifo.data n1:1
    n1 delivers n1:1 [a b]
    n2 ← n1 link fifo.data n1:1
    n2 delivers n1:1 [a b]

A block is one command a line, a line of four dashes, the output, and a blank line. A file is
right when playing its commands gives its outputs; ORDERCAST_GOLDEN=rewrite writes them anew.

To add a command, decorate a function of (play, *arguments) with `@command(name, usage)`; the
usage also says how many arguments there may be. What happens on `play.stage` is printed.
`group total n1 n2 and sequenced n2 n3` makes two groups, g and h; `submit n2@h` is meant for h.
`submit n1 safe: a b` is a batch with another service than the group's own.
`open total n1 n2 seed=n1` makes an open group; `enter n2 n1` starts n2, which knows of n1.
A family says in `Family.words` how its packets read, and what `show` tells of a member.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ordercast.errors import PeerError, UsageError, unknown_word
from ordercast.kernel.family import Family
from ordercast.kernel.founding import entry_of
from ordercast.kernel.inputs import DifferenceWanted, named_input
from ordercast.kernel.machine import Blocking
from ordercast.kernel.packet import tag_of
from ordercast.kernel.step import Note
from ordercast.kernel.wording import (
    GROUP,
    PacketWords,
    columns_text,
    event_text,
    in_group,
    notification_text,
    packet_text,
    value_text,
)
from ordercast.protocol.families import FAMILIES
from ordercast.testing.actor import Logged, Persisted, Posted, Received, TimerSet
from ordercast.testing.stage import InFlight, Stage, StageError
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

RULE = "----"
_TYPES = (Posted, Received, TimerSet, Persisted, Event, View, Note)
_NAMES = "sends receipts timers records deliveries views notes".split()
KINDS: dict[str, type] = dict(zip(_NAMES, _TYPES, strict=True))
"""The kinds of lines, as `hide` names them; it takes tags of packets too."""


# --- how things read -------------------------------------------------------------------------


def logged_text(who: NodeId, what: Logged, words: PacketWords) -> str:
    match what:
        case Received(sender, packet, channel):
            return f"{who} ← {sender} {channel.value} {packet_text(packet, words)}"
        case Posted(to, packet, channel):
            return f"{who} → {','.join(map(str, to))} {channel.value} {packet_text(packet, words)}"
        case Persisted(record):
            return f"{who} persists {packet_text(record, words)}"
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


def _when(after: int | None) -> str:
    if after is None:
        return "off"
    exact = str(Duration(after))
    return f"in {exact if len(exact) <= 6 else f'{after / 1e6:.3g}ms'}"


def _names(nodes: Sequence[NodeId]) -> str:
    return f"{{{' '.join(map(str, nodes))}}}"


def _payload(text: str) -> bytes:
    """`x*100` is a hundred times x."""
    found = re.fullmatch(r"(.)\*(\d{1,7})", text)
    return (found[1] * int(found[2]) if found else text).encode()


# --- files -----------------------------------------------------------------------------------


class Unfit(UsageError):
    """The arguments of a command make no sense. The reader learns the file and the line."""


class Block(NamedTuple):
    before: list[str]  # comments and blank lines, kept as they are
    commands: list[tuple[int, str]]  # with their lines


class Play:
    """One file being played: its stage, and what came of the commands so far."""

    def __init__(self, families: Mapping[str, Family]) -> None:
        self.families = families
        self.words = {
            kind: text
            for family in families.values()
            for kind, text in family.words.packets.items()
        }
        self.hidden: tuple[str, ...] = ()  # tags of packets and KINDS that are not printed
        self.started: Stage | None = None
        self._told = 0  # how much of the stage's log
        self._lines: list[str] = []

    @property
    def stage(self) -> Stage:
        if self.started is None:
            raise Unfit("there is no group yet: begin with `group FAMILY NAME...`")
        return self.started

    def say(self, *lines: str) -> None:
        """Lines of output, after all that happened on the stage so far."""
        self._lines += [*self._news(), *lines]

    def said(self) -> list[str]:
        self.say()
        lines, self._lines = self._lines, []
        assert all(line.strip() for line in lines), "a blank line would end the output"
        return lines

    def _news(self) -> list[str]:
        news = self.started.log[self._told :] if self.started else []
        self._told += len(news)
        return [
            logged_text(who, what, self.words) for who, what in news if not self._is_hidden(what)
        ]

    def _is_hidden(self, what: Logged) -> bool:
        if isinstance(what, Received | Posted) and tag_of(type(what.packet)) in self.hidden:
            return True
        return any(isinstance(what, KINDS[word]) for word in self.hidden if word in KINDS)


Command: TypeAlias = Callable[..., None]
COMMANDS: dict[str, tuple[str, Command]] = {}  # usage, and what it does


def command(name: str, usage: str) -> Callable[[Command], Command]:
    def add(function: Command) -> Command:
        COMMANDS[name] = (usage, function)
        return function

    return add


class Interaction:
    """An interaction file, read. UsageError names the file and the line."""

    def __init__(self, text: str, source: str, families: Mapping[str, Family] = FAMILIES) -> None:
        self.text = text
        self.source = source
        self.families = families
        self.blocks, self.after = _read(text, source)

    def played(self) -> str:
        """The file as it should be: the same commands, with what comes of them now."""
        play = Play(self.families)
        lines: list[str] = []
        for block in self.blocks:
            lines += [*block.before, *(text for _, text in block.commands), RULE]
            for number, text in block.commands:
                self._obey(play, number, text)
            lines += [*play.said(), ""]
        return "\n".join([*lines, *self.after]).rstrip("\n") + "\n"

    def difference(self) -> str:
        """What the file says beside what playing it gives; empty if that is the same."""
        played = self.played()
        if played == self.text:
            return ""
        sides = self.text.splitlines(), played.splitlines()
        names = f"{self.source} as written", f"{self.source} as played"
        return "\n".join(difflib.unified_diff(*sides, *names, lineterm="")) or "line ends differ"

    def _obey(self, play: Play, number: int, text: str) -> None:
        name, *arguments = text.split()
        try:
            if name not in COMMANDS:
                raise Unfit(unknown_word("command", name, COMMANDS))
            usage, function = COMMANDS[name]
            required = re.sub(r"\[.*?\]", "", usage).split()
            most = 1000 if "..." in usage else len(required) + usage.count("[")
            if not len(required) <= len(arguments) <= most:
                raise Unfit(f"write `{name} {usage}`")
            function(play, *arguments)
        except (Unfit, StageError) as error:
            raise UsageError(f"{self.source}:{number}: {error}") from error
        except (PeerError, UsageError) as error:  # a machine refused, which belongs to the play
            play.say(f"{type(error).__name__}: {error}")


def check_interaction(path: Path, families: Mapping[str, Family] = FAMILIES) -> None:
    """Plays a file. AssertionError shows the difference; or the file is written again."""
    interaction = Interaction(path.read_text(encoding="utf-8"), path.name, families)
    if os.environ.get("ORDERCAST_GOLDEN") == "rewrite":
        path.write_text(interaction.played(), encoding="utf-8")
    elif difference := interaction.difference():
        raise AssertionError(f"{path.name}: if this is meant, `make golden`\n{difference}")


def _read(text: str, source: str) -> tuple[list[Block], list[str]]:
    """The blocks, and the comments after the last one. What was written as output is let go."""
    blocks: list[Block] = []
    block = Block([], [])
    in_output = False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if in_output:
            in_output = bool(line.strip())
        elif line == RULE and block.commands:
            blocks.append(block)
            block, in_output = Block([], []), True
        elif line.strip() and line != RULE and not line.startswith("#"):
            block.commands.append((number, line))
        elif block.commands or line == RULE:
            raise UsageError(f"{source}:{number}: a command, then {RULE}, then its output")
        else:
            block.before.append(line)
    return blocks, block.before


# --- the commands ----------------------------------------------------------------------------


@command("group", "FAMILY NAME... [and FAMILY NAME...] [option=value]")
def _group(play: Play, *arguments: str) -> None:
    if play.started is not None:
        raise Unfit("one group a file, or several in one line")
    words = " ".join(word for word in arguments if "=" not in word)
    groups = [tuple(part.partition(" ")[::2]) for part in words.split(" and ")]
    for name, _ in groups:
        if name not in play.families:
            raise Unfit(unknown_word("family", name, play.families))
    (family, members), *beside = [(play.families[name], names) for name, names in groups]
    try:
        play.started = Stage.of(family, members, beside=beside, **_values(arguments))
    except ValueError as error:  # msgspec's own included
        raise Unfit(f"options of {family.name}: {error}") from error


def _values(arguments: Sequence[str]) -> dict[str, Any]:
    pairs = (word.split("=", 1) for word in arguments if "=" in word)
    given: dict[str, Any] = {key: int(v) if v.isdecimal() else v for key, v in pairs}
    return given | {
        key: value == "true" for key, value in given.items() if value in ("true", "false")
    }


@command("open", "FAMILY NAME... [seed=NAME] [founder=NAME] [expect=N] [of=N] [option=value]")
def _open(play: Play, name: str, *arguments: str) -> None:
    """An open group that these may enter. All but the seed have one, and the seed founds it."""
    if play.started is not None:
        raise Unfit("one group a file")
    if name not in play.families:
        raise Unfit(unknown_word("family", name, play.families))
    given = _values(arguments)
    rule = {word: given.pop(word) for word in ("founder", "expect", "of") if word in given}
    seed = given.pop("seed", "")
    members = [word for word in arguments if "=" not in word]
    entries = {member: entry_of(member, seeds=member != seed, **rule) for member in members}
    try:
        play.started = Stage.open(play.families[name], entries, **given)
    except ValueError as error:
        raise Unfit(f"options of {name}: {error}") from error


@command("submit", "NAME [SERVICE:] MESSAGE...")
def _submit(play: Play, place: str, *messages: str) -> None:
    name, _, other = place.partition("@")
    group, service = other or GROUP, ""
    if play.stage.family.services and messages[0].endswith(":"):
        service, messages = messages[0][:-1], messages[1:]
        if not messages:
            raise Unfit(f"submit what by {service}? Write `submit NAME SERVICE: MESSAGE...`")
    payloads = [_payload(text) for text in messages]
    if play.stage.submit(name, payloads, group, service) is None:
        machine = play.stage.machine(name, group)
        why = f": {machine.blocked_by(group)}" if isinstance(machine, Blocking) else ""
        play.say(f"{play.stage.node(name)} does not accept it now{why}")


@command("accepts", "NAME")
def _accepts(play: Play, name: str) -> None:
    play.say("yes" if play.stage.accepts(name) else "no")


def _with_messages(act: Callable[[Stage, InFlight], object]) -> Command:
    """On a path: with the oldest packet, the oldest of a kind (`Alive`, `fifo.alive`), or all."""

    def chosen(play: Play, source: str, target: str, which: str = "packet") -> None:
        waiting = play.stage.underway(source, target)
        if which not in ("packet", "all"):
            kinds = [(type(each.packet).__name__, tag_of(type(each.packet))) for each in waiting]
            waiting = [each for each, kind in zip(waiting, kinds, strict=True) if which in kind]
        if not waiting:
            raise Unfit(f"nothing such ({which}) is underway from {source} to {target}")
        for message in waiting if which == "all" else waiting[:1]:
            if message in play.stage.underway():  # the end of a dead sender's link goes as one
                act(play.stage, message)

    return chosen


command("deliver", "FROM TO [KIND|all]")(_with_messages(Stage.deliver))
command("drop", "FROM TO [KIND|all]")(_with_messages(Stage.drop))
command("double", "FROM TO [KIND|all]")(_with_messages(Stage.double))


@command("underway", "[FROM] [TO]")
def _underway(play: Play, source: str | None = None, target: str | None = None) -> None:
    for message in play.stage.underway(source, target):
        what = packet_text(message.packet, play.words)
        play.say(f"{message.sender} → {message.to} {message.channel.value} {what}")


@command("tick", "NAME [TIMER]")
def _tick(play: Play, name: str, wanted: str | None = None) -> None:
    timers = [timer for timer in play.stage.timers(name) if wanted in (None, value_text(timer))]
    if not timers:
        raise Unfit(f"{name} has no such timer set; it has {value_text(play.stage.timers(name))}")
    play.stage.fire(name, timers[0])


@command("settle", "[ticks=COUNT]")
def _settle(play: Play, ticks: str = "ticks=0") -> None:
    if not re.fullmatch(r"ticks=\d{1,4}", ticks):
        raise Unfit("write `settle [ticks=COUNT]`")
    play.stage.settle(int(ticks.removeprefix("ticks=")))


@command("provide", "NAME STATE")
def _provide(play: Play, name: str, state: str) -> None:
    play.stage.provide(name, _payload(state))


@command("seek", "NAME on|off")
def _seek(play: Play, name: str, word: str) -> None:
    play.stage.seek(name, word == "on")


@command("give", "NAME INPUT [field=value]...")
def _give(play: Play, name: str, word: str, *pairs: str) -> None:
    values = {"group": GROUP, **dict(pair.split("=", 1) for pair in pairs if "=" in pair)}
    play.stage.give(name, named_input(play.stage.machine(name).takes, word, values))


@command("difference", "NAME MEMBER")
def _difference(play: Play, name: str, member: str) -> None:
    """Asks about the side of this member in the last merge."""
    heard = [what for who, what in play.stage.log if who == play.stage.node(name)]
    merges = [what for what in heard if isinstance(what, Merged)]
    for side in merges[-1].sides[1:] if merges else ():
        if member in [node.name for node in side]:
            given = DifferenceWanted(merges[-1].group, merges[-1].view.id, side)
            play.stage.give(name, given, merges[-1].group)
            return
    raise Unfit(f"{name} has not merged with a side of {member}")


command("reform", "NAME")(lambda play, name: play.stage.form(name))
command("answer", "NAME yes|no")(lambda play, name, word: play.stage.answer(name, word == "yes"))
command("crash", "NAME")(lambda play, name: play.stage.crash(name))
command("restart", "NAME")(lambda play, name: play.stage.start(name))
command("leave", "NAME")(lambda play, name: play.stage.leave(name))
command("rejoin", "NAME")(lambda play, name: play.stage.rejoin(name))
command("enter", "NAME [KNOWN...]")(lambda play, name, *known: play.stage.enter(name, *known))


def _with_path(act: Callable[..., None]) -> Command:
    def between(play: Play, source: str, target: str, way: str = "") -> None:
        if way not in ("", "one-way"):
            raise Unfit(f"{way!r}: both ways, or `one-way` from the first to the second")
        act(play.stage, source, target, one_way=bool(way))

    return between


command("cut", "NAME NAME [one-way]")(_with_path(Stage.cut))
command("mend", "NAME NAME [one-way]")(_with_path(Stage.mend))


@command("show", "NAME...")
def _show(play: Play, *names: str) -> None:
    for name in names:
        machine = play.stage.machine(name)
        describe = play.stage.family.words.state
        play.say(*(describe(machine) if describe else [value_text(vars(machine), play.words)]))


@command("hide", "[TAG|sends|receipts|timers|records|deliveries|views|notes]...")
def _hide(play: Play, *words: str) -> None:
    """Tells no longer of these packets and kinds of lines; `hide` alone tells of all again."""
    tags = [tag_of(kind) for family in play.families.values() for kind in family.packets]
    for word in words:
        if word not in (*KINDS, *tags):
            raise Unfit(unknown_word("kind of line", word, [*KINDS, *tags]))
    play.say()
    play.hidden = words
