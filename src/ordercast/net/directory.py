"""Which nodes are in which groups, as connected nodes say it: discovery, and a check of terms.

Rules.
 1. A node says of each of its groups: on which terms it joined, whether it is in the group or
    waits, since when, and a few members. It says so to connected nodes that may join the group,
    after the greeting and when it has changed; a change of members alone may wait a second, and
    is no news to those who were named as many as a note names.
 2. An open group is given the names of nodes that are in it, or wait for it too (`Acquainted`). A
    node introduces those that wait to others that joined the group, though it is not in it itself:
    so any seed will do. A name is given once, and again when the node has connected again.
 3. Terms that differ are an error of one member (`Mismatch`), which ends its group: of the one that
    waits, if the other is in the group; or else of the one that is alone in it, or of the younger.
    If neither is clearly older, it is an error of both. The other one logs a line, once. A member
    that is in the group with others on its own terms is never wrong: no single node can end a
    group.
 4. Two members whose groups were founded apart have two groups where there should be one. One of
    the two is wrong, as in rule 3. If both are in company neither ends, and the applications of
    both are notified. This is for families that form groups; elsewhere two foundings merge, or the
    machines compare them.

What it does not do: connect nodes. It gives the contacts the places that others name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from time import monotonic_ns
from typing import NamedTuple, Protocol

from ordercast.errors import PeerError, UsageError
from ordercast.kernel.buffers import Bounded
from ordercast.kernel.inputs import Acquainted, Input
from ordercast.kernel.terms import differences
from ordercast.net.contact import Contact
from ordercast.net.contacts import Contacts
from ordercast.types import NodeId, Waiting
from ordercast.wire import greeting
from ordercast.wire.framing import FrameKind
from ordercast.wire.groups import MOST_MEMBERS, MOST_NOTES, GroupNote, Groups

log = logging.getLogger("ordercast.net")

LARGEST_NOTES = 1 << 20
MOST_GROUPS = 1024
"""Groups of one node that are remembered."""
MOST_WARNED = 256
"""Nodes and foundings of a group that the log has a line about. Beyond that it may have another."""
MEMBERS_SECONDS = 1.0
SURELY_OLDER = 1000
"""Milliseconds: more than a note takes from node to node. By less, two ages are equal."""
HOOKS = "hooks"
"""The term that says whether an application gives and takes states. Others may do without."""
ALL_HOOKS = (
    "a member without them joins without the state that the others have. Give both to join at all "
    "members, or join with read=False where an application only sends"
)
SAME_TERMS = (
    "Give join the same level, options and members at all nodes of the group. This node has left it"
)
JOIN_AGAIN = "This node has left its own: call node.join again, which joins the other"
ONE_OF_TWO = (
    "Leave one of them and join again, which joins the other; or re-form the group from the side "
    "that counts"
)
OPEN, BY_PEERS = "open", "by peers"
"""Terms of members that are not listed by name."""


class Mismatch(UsageError):
    """This member joined a group on other terms than the other members."""


class FoundedTwice(Mismatch):
    """This member was alone in a group beside another group of the same name, which goes on: join
    again, which joins that one."""


class Inside(Protocol):
    """Whether this member is in a group, and with whom."""

    is_in: bool

    @property
    def members(self) -> tuple[NodeId, ...]: ...

    @property
    def founding(self) -> str: ...


class OwnGroup:
    """A group of this node."""

    def __init__(
        self, terms: dict[str, str], is_open: bool, inside: Inside, *, stays_parted: bool = False
    ) -> None:
        self.terms = terms
        self.stays_parted = stays_parted  # its parts become one on request only
        # Connected nodes that were last found in another part, and who was in ours.
        self.apart: tuple[tuple[str, ...], tuple[NodeId, ...]] = (), ()
        self.is_open = is_open
        self.said_in = False
        self.said_enough = False  # a note named as many members as it can
        # Of these, or of their founding, the log has a line.
        self.warned: Bounded[NodeId | str] = Bounded(MOST_WARNED)
        self.acquainted: set[str] = set()  # names that the machine was given, of contacts
        self._inside = inside
        self._joined_at = monotonic_ns()

    @property
    def is_in(self) -> bool:
        return self._inside.is_in

    @property
    def members(self) -> tuple[NodeId, ...]:
        return self._inside.members

    @property
    def founding(self) -> str:
        return self._inside.founding

    @property
    def age(self) -> int:
        """Milliseconds since this member joined."""
        return (monotonic_ns() - self._joined_at) // 1_000_000


class Told(NamedTuple):
    """What a connected node said."""

    node: NodeId
    notes: dict[str, GroupNote]  # by group


class Directory:
    def __init__(
        self,
        me: NodeId,
        contacts: Contacts,
        may_join: Callable[[str, str], bool],  # whether this node may be in this group
        send: Callable[[Contact, FrameKind, bytes], object],
        give: Callable[[str, Input], object],  # to the machine of a group
        end: Callable[[str, Mismatch], None],  # this member cannot be in the group
        notify: Callable[[Waiting], None],  # the application of a group, which goes on
    ) -> None:
        self.me = me
        self._contacts = contacts
        self._may_join = may_join
        self._send = send
        self._give = give
        self._end = end
        self._notify = notify
        self._loop = asyncio.get_running_loop()
        self._own: dict[str, OwnGroup] = {}
        self._told: dict[str, Told] = {}  # by node
        self._changed: dict[str, None] = {}  # groups of ours that connected nodes hear of next
        self._timer: asyncio.TimerHandle | None = None
        self._is_soon = False
        self._looking: dict[str, asyncio.TimerHandle] = {}  # for other parts of these groups

    # --- what we say -------------------------------------------------------------------------

    def joined(self, group: str, own: OwnGroup) -> None:
        self._own[group] = own
        self._change(group, 0.0)
        for name, told in list(self._told.items()):
            if group in told.notes and self._is_connected(name) and group in self._own:
                self._heard(told.node, told.notes[group])

    def left(self, group: str) -> None:
        if self._own.pop(group, None) is not None:
            self._change(group, 0.0)

    def changed(self, group: str) -> None:
        """This member may be in the group now, or the group has other members."""
        own = self._own.get(group)
        if own is None:
            return
        self._look_soon(group)
        if own.is_in != own.said_in:
            self._change(group, 0.0)
        elif not own.said_enough:
            self._change(group, MEMBERS_SECONDS)

    def _change(self, group: str, seconds: float) -> None:
        self._changed[group] = None
        if self._timer is not None:
            if self._is_soon or seconds:
                return
            self._timer.cancel()
        self._is_soon = not seconds
        self._timer = self._loop.call_later(seconds, self._say_changes)

    def _say_changes(self) -> None:
        self._timer = None
        changed, self._changed = list(self._changed), {}
        notes = {
            group: self._note(group, own) for group in changed if (own := self._own.get(group))
        }
        for contact in self._contacts.values():
            if contact.connection is not None:
                self._say(contact, changed, notes)

    def met(self, contact: Contact) -> None:
        """A connection is ready: both ends say everything."""
        assert contact.node is not None
        self._told[contact.name] = Told(contact.node, {})
        for name in [name for name in self._told if not self._is_connected(name)]:
            del self._told[name]
        self._say_all(contact, self._own)

    def _say_all(self, contact: Contact, groups: Iterable[str]) -> None:
        notes = {group: self._note(group, self._own[group]) for group in groups}
        self._say(contact, notes, notes)

    def _say(self, contact: Contact, groups: Iterable[str], notes: dict[str, GroupNote]) -> None:
        """What is to be said of these groups. Those without a note we have left."""
        permitted = [group for group in groups if self._may_join(contact.name, group)]
        for first in range(0, len(permitted), MOST_NOTES):
            some = permitted[first : first + MOST_NOTES]
            said = [notes[group] for group in some if group in notes]
            left = [group for group in some if group not in notes]
            self._send(contact, FrameKind.GROUPS, greeting.encode(Groups(said, left)))

    def _note(self, group: str, own: OwnGroup) -> GroupNote:
        """With some members, others each time where there are many: all would turn to the same."""
        own.said_in = own.is_in
        known = [
            (member.name, contact.place)
            for member in own.members
            if (contact := self._contacts.get(member.name)) and contact.place is not None
        ]
        own.said_enough = len(known) >= MOST_MEMBERS
        if len(known) > MOST_MEMBERS:
            known = self._contacts.chance.sample(known, MOST_MEMBERS)
        return GroupNote(group, own.terms, own.said_in, own.age, own.founding, dict(known))

    # --- what others say ---------------------------------------------------------------------

    def receive(self, contact: Contact, body: memoryview) -> None:
        """PeerError costs the sender its connection."""
        if len(body) > LARGEST_NOTES:
            raise PeerError(f"{len(body)} bytes about groups: at most {LARGEST_NOTES}")
        groups = greeting.decode(body, Groups)
        told = self._told.get(contact.name)
        assert contact.node is not None
        if told is None or told.node != contact.node:
            told = self._told[contact.name] = Told(contact.node, {})
        for name in groups.left:
            told.notes.pop(name, None)
            self._look_soon(name)
        for note in groups.notes:
            is_new = note.name not in told.notes
            is_too_much = is_new and len(told.notes) >= MOST_GROUPS
            if is_too_much or not self._may_join(contact.name, note.name):
                self._contacts.incidents.count("groups_ignored")
                continue
            told.notes[note.name] = note
            if note.name in self._own:
                if is_new:  # since it connected: a machine that has given it up calls it again
                    self._own[note.name].acquainted.discard(contact.name)
                self._heard(told.node, note)
            if is_new:
                self._introduce(contact, note)
        for group, places in groups.elsewhere.items():
            if group in self._own and self._own[group].is_open:
                self._acquaint(group, places, contact.name)

    def _introduce(self, contact: Contact, note: GroupNote) -> None:
        """A node has joined a group: it hears of others there, and those that wait hear of it."""
        group = note.name
        others = [
            other
            for name, told in self._told.items()
            if group in told.notes
            and name != contact.name
            and self._is_connected(name)
            and (other := self._contacts.get(name)) is not None
        ][:MOST_MEMBERS]
        if not note.is_in:
            self._tell_of(group, others, contact)
        for other in others:
            if not self._told[other.name].notes[group].is_in:
                self._tell_of(group, [contact], other)

    def introduce(self, group: str, names: list[str], peers: Iterable[NodeId]) -> None:
        """A packet names these to members, who may want to reach them next."""
        for to in filter(None, (self._contacts.get(peer.name) for peer in peers)):
            some = [
                one
                for name in names
                if (one := self._contacts.get(name)) is not None and name != to.name
            ]
            for at in range(0, len(some), MOST_MEMBERS) if to.connection is not None else ():
                self._tell_of(group, some[at : at + MOST_MEMBERS], to)

    def _tell_of(self, group: str, some: list[Contact], to: Contact) -> None:
        places = {one.name: one.place for one in some if one.place is not None}
        if places:
            news = Groups(elsewhere={group: places})
            self._send(to, FrameKind.GROUPS, greeting.encode(news))

    def _heard(self, sender: NodeId, note: GroupNote) -> None:
        own = self._own[note.name]
        objection = unlike(own.terms, note.terms)
        if objection:
            self._object(sender, own, note, f"on other terms than {sender}: {objection}")
            return
        # Where members are listed, a client without a state is listed on purpose.
        if own.is_open and (hooks := _unlike_hooks(own.terms, note.terms)):
            self._warn_of_hooks(sender, own, note.name, hooks)
        if self._is_other_group(sender, own, note):
            self._object(sender, own, note, _two_groups(sender, own, note), note.founding)
        if own.is_open and note.name in self._own:
            self._acquaint(note.name, {sender.name: "", **note.members}, sender.name)
        self._look_soon(note.name)

    def _warn_of_hooks(self, sender: NodeId, own: OwnGroup, group: str, hooks: str) -> None:
        if (key := f"{HOOKS} {sender}") not in own.warned:
            own.warned.add(key)
            log.warning("%s joined %r %s: %s", self.me, group, hooks.format(sender), ALL_HOOKS)

    def _is_other_group(self, sender: NodeId, own: OwnGroup, note: GroupNote) -> bool:
        """Whether the two are in groups that were founded apart."""
        if not (own.is_in and note.is_in and own.founding and note.founding):
            return False
        together = sender in own.members or self.me.name in note.members
        return own.founding != note.founding and not together

    def _look_soon(self, group: str) -> None:
        """Not at once: members of one view do not install it at the same time."""
        own = self._own.get(group)
        if own is not None and own.stays_parted and group not in self._looking:
            look = self._loop.call_later(MEMBERS_SECONDS, self._look_for_parts, group)
            self._looking[group] = look

    def _look_for_parts(self, group: str) -> None:
        """Notifies the application that members are there again which a partition had cut off."""
        del self._looking[group]
        own = self._own.get(group)
        if own is None:
            return
        there = [
            name
            for name, told in self._told.items()
            if group in told.notes and self._is_connected(name)
        ]
        apart = tuple(sorted(name for name in there if self._is_apart(own, group, name)))
        before, own.apart = own.apart, (apart, own.members if apart else ())
        if own.apart == before:
            return
        why = _apart_text(group, apart) if apart else ""
        if apart:
            log.warning("%s: %s", self.me, why)
        self._notify(Waiting(group, apart, why, monotonic_ns()))

    def _is_apart(self, own: OwnGroup, group: str, name: str) -> bool:
        """Whether this node is in the group that we are in, and the two do not see each other."""
        node, note = self._told[name].node, self._told[name].notes[group]
        if not (own.is_in and note.is_in) or own.founding != note.founding:
            return False
        together = node in own.members or self.me.name in note.members
        return not together and not unlike(own.terms, note.terms)

    def _object(
        self, sender: NodeId, own: OwnGroup, note: GroupNote, what: str, other: str = ""
    ) -> None:
        """Ends our group if we are in the wrong, and warns once if the other is.

        `other`: the founding of another group of this name. The application is notified of that
        too.
        """
        group = note.name
        is_wrong = note.is_in
        if own.is_in == note.is_in:
            company = _company(sender, self.me, note)
            is_wrong = bool(company) or _is_younger(own, note)
        if is_wrong and not self._has_company(sender, group, own):
            self._say_all(self._contacts[sender.name], [group])  # or it would not hear why we left
            kind, advice = (FoundedTwice, JOIN_AGAIN) if other else (Mismatch, SAME_TERMS)
            self._end(group, kind(f"{self.me} joined {group!r} {what}. {advice}"))
        elif (other or sender) not in own.warned:
            own.warned.add(other or sender)
            what = f"{what}. {ONE_OF_TWO}" if other else what
            log.warning("%s joined %r %s", self.me, group, what)
            if other and _company(sender, self.me, note):
                self._notify(Waiting(group, (sender.name,), what, monotonic_ns()))

    def _has_company(self, sender: NodeId, group: str, own: OwnGroup) -> bool:
        """Whether we are in the group with somebody on our terms."""
        return own.is_in and any(
            told.node in own.members
            and told.node != sender
            and group in told.notes
            and not unlike(own.terms, told.notes[group].terms)
            for name, told in self._told.items()
            if self._is_connected(name)
        )

    def _acquaint(self, group: str, places: dict[str, str], by: str) -> None:
        """These nodes joined the group: the machine hears of those whom we can reach."""
        own = self._own[group]
        self._contacts.told({name: place for name, place in places.items() if place}, by)
        new = [
            name
            for name in places
            if name in self._contacts and name not in own.acquainted and self._may_join(name, group)
        ]
        if new:
            own.acquainted.intersection_update(self._contacts)
            own.acquainted.update(new)
            self._give(group, Acquainted(group, tuple(new)))

    # --- questions ---------------------------------------------------------------------------

    def _is_connected(self, name: str) -> bool:
        contact = self._contacts.get(name)
        return contact is not None and contact.connection is not None

    def present(self, group: str) -> dict[str, bool]:
        """Connected nodes that joined a group: whether they are in it, or wait too."""
        return {
            name: told.notes[group].is_in
            for name, told in self._told.items()
            if group in told.notes and self._is_connected(name)
        }

    def groups_of_others(self) -> list[tuple[str, list[str]]]:
        """Connected nodes, and the groups that each has joined."""
        there = sorted(name for name in self._told if self._is_connected(name))
        return [(name, sorted(notes)) for name in there if (notes := self._told[name].notes)]

    def waits(self) -> bool:
        """Whether this node is not in one of its groups yet."""
        return any(not own.is_in for own in self._own.values())

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for look in self._looking.values():
            look.cancel()


def _apart_text(group: str, names: tuple[str, ...]) -> str:
    are, it = ("is", "it") if len(names) == 1 else ("are", "them")
    return (
        f"{' '.join(names)} {are} in another part of {group!r}, and can be reached again: "
        f"await node.reform({group!r}) unites this part with {it}, and keeps the state of this one"
    )


def _company(sender: NodeId, me: NodeId, note: GroupNote) -> set[str]:
    """With whom the sender is in its group, other than us."""
    return note.members.keys() - {me.name, sender.name}


def _is_younger(own: OwnGroup, note: GroupNote) -> bool:
    """Whether ours is the later of two groups, or may be. Of one founder the later incarnation
    founded the later one: it had lost its folder, or was cut off."""
    founder, *ours = own.founding.rsplit(".", 2)
    other, *theirs = note.founding.rsplit(".", 2)
    if founder == other and all(map(str.isdecimal, (*ours, *theirs))) and ours != theirs:
        return [*map(int, ours)] > [*map(int, theirs)]
    return own.age <= note.age + SURELY_OLDER


def _unlike_hooks(ours: dict[str, str], theirs: dict[str, str]) -> str:
    """How two applications differ in `snapshot` and `restore`; "": they do not, or only send."""
    if HOOKS not in ours or HOOKS not in theirs or ours[HOOKS] == theirs[HOOKS]:
        return ""
    return f"{ours[HOOKS]} snapshot and restore, and {{}} {theirs[HOOKS]} them"


def _two_groups(sender: NodeId, own: OwnGroup, note: GroupNote) -> str:
    return (
        f"that {own.founding} founded, and {sender} is in one that {note.founding} founded: there "
        "are two groups of this name"
    )


def unlike(ours: dict[str, str], theirs: dict[str, str]) -> str:
    """What is not the same and must be, in words; "": all is well."""
    if ours.get("kind") != theirs.get("kind"):  # then they have hardly an option in common
        names = [name for name in ours if "." in name and name in theirs] or ["kind"]
        ours = {name: ours.get(name, "") for name in names}
        theirs = {name: theirs.get(name, "") for name in names}
    ours, theirs = dict(ours), dict(theirs)
    ours.pop(HOOKS, None), theirs.pop(HOOKS, None)
    listed = {ours.get("members"), theirs.get("members")}
    if BY_PEERS in listed and OPEN not in listed:
        ours.pop("members"), theirs.pop("members")  # nobody listed them, so nothing contradicts
    return differences(ours, theirs)
