"""The members of each open group when this node was last in it: the file `groups` of its folder.

Rules.
 1. Whether a node may found a group depends on the file (`kernel/founding.py`). So a step that
    installs a view, or that shows a member where there are no views, takes effect when the file
    has it. The committer writes the file: the event loop does not wait, nor do other machines.
 2. Where there are no views, members come one by one, by the hundred: beyond the first few they are
    written together, after some seconds. A thousand nodes that start at once would do nothing but
    wait for their disks.
 3. Groups that the node is in are remembered. Of those that it is in no longer, the last so many
    are. To a group that is forgotten the node comes like one that was never in it. The counter
    `groups_forgotten` says how many there were.
 4. The file names the family of each group. A group of the same name that is of another family is
    another group, which this node was never in. A file of an earlier version does not name the
    family: its entries count for any, until the node is in the group again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from ordercast.errors import UsageError
from ordercast.kernel.founding import remembered
from ordercast.kernel.host import Host
from ordercast.kernel.step import Step
from ordercast.kernel.world import Commit
from ordercast.net.committer import Committer
from ordercast.net.incidents import Incidents
from ordercast.types import Joined, Left, View

MOST_NAMES = 64
"""Names of a group that are remembered. A majority of these may found it again."""
MOST_LEFT = 256
"""Groups that are remembered though the node is not in them."""
ANY_FAMILY = ""
"""Of a group in a file of an earlier version, which has names by group."""
FEW_NAMES = 8
"""While fewer are remembered, each one more is durable before its step takes effect."""
GATHERING_SECONDS = 5.0


class GroupOfFamily(NamedTuple):
    group: str
    family: str


class LastMembers:
    def __init__(self, folder: Path, committer: Committer, incidents: Incidents) -> None:
        self._committer = committer
        self._incidents = incidents
        self._watched: dict[str, str] = {}  # open groups that it is in, or joins; their families
        self._file = folder / "groups"
        # Of groups that this node is not in, the one that it left last comes last.
        self._known: dict[GroupOfFamily, tuple[str, ...]] = {}
        self._writing: asyncio.TimerHandle | None = None  # something will be written
        try:
            if self._file.exists():
                self._known = _decoded(self._file.read_bytes())
        except msgspec.DecodeError as error:
            raise UsageError(f"{self._file} is damaged: it should hold names by group") from error
        except OSError as error:
            raise UsageError(f"{self._file} cannot be read: {error.strerror}") from error
        self._durable = dict(self._known)  # what the file has

    def of(self, group: str, family: str) -> tuple[str, ...]:
        """Sorted; none: this node was never in the group, or has forgotten it."""
        keys = GroupOfFamily(group, family), GroupOfFamily(group, ANY_FAMILY)
        return next((self._known[key] for key in keys if key in self._known), ())

    def has_been_alone(self, name: str) -> bool:
        """Whether this node was the only member of some group when it was last in it."""
        return (name,) in self._known.values()

    # --- groups come and go ------------------------------------------------------------------

    def watch(self, group: str, family: str, host: Host) -> None:
        """This node joins an open group: what its machine says of members is remembered."""
        self._watched[group] = family
        self._forget_oldest()
        host.remember = self._remember

    def left(self, group: str) -> None:
        """This node is not in the group any more."""
        key = GroupOfFamily(group, self._watched.pop(group, ANY_FAMILY))
        if key in self._known:
            self._known[key] = self._known.pop(key)
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        left = [key for key in self._known if not self._is_watched(key)]
        for key in left[:-MOST_LEFT]:
            del self._known[key]
            self._incidents.count("groups_forgotten")

    def _is_watched(self, key: GroupOfFamily) -> bool:
        family = self._watched.get(key.group)
        return family is not None and key.family in (family, ANY_FAMILY)

    # --- members come and go -----------------------------------------------------------------

    def _remember(self, step: Step) -> Commit | None:
        """What must be on the disk before this step takes effect."""
        is_urgent = False
        for news in step.outputs:
            if isinstance(news, View | Joined | Left) and news.group in self._watched:
                key = GroupOfFamily(news.group, self._watched[news.group])
                before = self.of(*key)
                few = isinstance(news, View) or len(before) < FEW_NAMES
                self._learn(key, remembered(before, news))
                if self._known[key] != self._durable.get(key):
                    is_urgent = is_urgent or few
                    self._write_soon()
        return self._write if is_urgent else None

    def note(self, group: str, family: str, names: Iterable[str]) -> None:
        """Who is in the group now, ourselves included."""
        self._learn(GroupOfFamily(group, family), names)
        self._write_changes()

    def _learn(self, key: GroupOfFamily, names: Iterable[str]) -> None:
        members = tuple(sorted(set(names)))
        if len(members) > MOST_NAMES:
            if len(self._known.get(key, ())) == MOST_NAMES:
                return  # enough of them to be sure that it is not us alone
            members = members[:MOST_NAMES]
        self._known.pop(GroupOfFamily(key.group, ANY_FAMILY), None)
        self._known[key] = members

    async def drop(self, name: str) -> list[str]:
        """Another node will not come back. Returns the groups in which it does not count any more.

        DiskError: it may count again after a restart.
        """
        keys = [key for key, names in self._known.items() if name in names]
        for key in keys:
            self._known[key] = tuple(each for each in self._known[key] if each != name)
        if keys:
            await self._committer.awaited(self._write)
        return list(dict.fromkeys(key.group for key in keys))

    def forget(self, done: Callable[[], None]) -> None:
        """Another incarnation begins, which was in no group. Calls `done` when that is durable."""
        self._known.clear()
        self._write(done)

    # --- the file ----------------------------------------------------------------------------

    def close(self) -> None:
        """Gives the committer, which is closed next, what is not written yet."""
        self._write_changes()

    def _write_soon(self) -> None:
        if self._writing is None:
            loop = asyncio.get_running_loop()
            self._writing = loop.call_later(GATHERING_SECONDS, self._write_changes)

    def _write_changes(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        if self._known != self._durable:
            self._write(lambda: None)

    def _write(self, done: Callable[[], None]) -> None:
        written = dict(self._known)

        def durable() -> None:
            self._durable = written
            done()

        self._committer.rewrite(self._file, _encoded(written), durable)


def _decoded(found: bytes) -> dict[GroupOfFamily, tuple[str, ...]]:
    entries = msgspec.json.decode(found, type=dict[str, tuple[str, ...]])
    return {_key_of(text): names for text, names in entries.items()}


def _encoded(known: dict[GroupOfFamily, tuple[str, ...]]) -> bytes:
    return msgspec.json.encode({_text_of(key): names for key, names in known.items()})


def _text_of(key: GroupOfFamily) -> str:
    """No group has a `+` in its name."""
    return f"{key.group}+{key.family}" if key.family != ANY_FAMILY else key.group


def _key_of(text: str) -> GroupOfFamily:
    group, _, family = text.partition("+")
    return GroupOfFamily(group, family)
