"""The members of each open group when this node was last in it: the file `groups` of its folder.

Whether a node may found a group depends on it (`kernel/founding.py`), so it is durable before
anything leaves of the step that installs a view, or that shows a member where there are no views.
It is written when it has changed, which is rare. Only where there are no views members come one by
one, by the hundred: beyond the first few they are written together, after some seconds. A thousand
nodes that start at once would do nothing but wait for their disks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from ordercast.errors import DiskError, UsageError
from ordercast.kernel.founding import remembered
from ordercast.kernel.host import Host, Seat
from ordercast.kernel.step import Step
from ordercast.store.log import PRIVATE, flush, sync_folder
from ordercast.types import Event, Joined, Left, View

MOST_NAMES = 64
"""Names of a group that are remembered. A majority of these may found it again."""
FEW_NAMES = 8
"""While fewer are remembered, each one more is durable at once."""
GATHERING_SECONDS = 5.0


class LastMembers:
    def __init__(self, folder: Path, failed: Callable[[DiskError], None]) -> None:
        """`failed`: the node cannot go on."""
        self._failed = failed
        self._watched: set[str] = set()  # open groups
        self._file = folder / "groups"
        self._known: dict[str, list[str]] = {}
        self._writing: asyncio.TimerHandle | None = None  # something is known that is not written
        try:
            if self._file.exists():
                found = self._file.read_bytes()
                self._known = msgspec.json.decode(found, type=dict[str, list[str]])
        except msgspec.DecodeError as error:
            raise UsageError(f"{self._file} is damaged: it should hold names by group") from error
        except OSError as error:
            raise UsageError(f"{self._file} cannot be read: {error.strerror}") from error

    def of(self, group: str) -> tuple[str, ...]:
        """Sorted; none: this node was never in the group."""
        return tuple(self._known.get(group, ()))

    def has_been_alone(self, name: str) -> bool:
        """Whether this node was the only member of some group when it was last in it."""
        return [name] in self._known.values()

    def watch(self, group: str, host: Host) -> None:
        """This node joins an open group: what its machine says of members is remembered."""
        self._watched.add(group)
        host.observe = self._observe

    def _observe(self, seat: Seat, step: Step, event: Event | None) -> None:
        """Before anything of a step leaves."""
        is_urgent = False
        for news in step.outputs:
            if isinstance(news, View | Joined | Left) and news.group in self._watched:
                few = isinstance(news, View) or len(self.of(news.group)) < FEW_NAMES
                is_new = self._learn(news.group, remembered(self.of(news.group), news))
                is_urgent = is_urgent or (is_new and few)
                if is_new and self._writing is None:
                    loop = asyncio.get_running_loop()
                    self._writing = loop.call_later(GATHERING_SECONDS, self._write_or_fail)
        if is_urgent:
            self._write_or_fail(is_raised=True)

    def _write_or_fail(self, *, is_raised: bool = False) -> None:
        try:
            self._write()
        except DiskError as error:
            self._failed(error)
            if is_raised:
                raise

    def note(self, group: str, names: Iterable[str]) -> None:
        """Who is in the group now, ourselves included."""
        if self._learn(group, names):
            self._write()

    def _learn(self, group: str, names: Iterable[str]) -> bool:
        """Whether that is new."""
        members = sorted(set(names))
        before = self._known.get(group)
        if len(members) > MOST_NAMES:
            if before is not None and len(before) == MOST_NAMES:
                return False  # enough of them to be sure that it is not us alone
            members = members[:MOST_NAMES]
        self._known[group] = members
        return members != before

    def drop(self, name: str) -> list[str]:
        """This node will not come back. Returns the groups in which it does not count any more."""
        groups = [group for group, names in self._known.items() if name in names]
        if groups:
            without = {each: [one for one in self._known[each] if one != name] for each in groups}
            self._replace({**self._known, **without})
        return groups

    def forget(self) -> None:
        """Another incarnation begins, which was in no group."""
        self._replace({})

    def _replace(self, known: dict[str, list[str]]) -> None:
        """DiskError: nothing has changed."""
        before, self._known = self._known, known
        try:
            self._write()
        except DiskError:
            self._known = before
            raise

    def close(self) -> None:
        """What is not written yet is written now, if that can be done."""
        if self._writing is not None:
            with suppress(DiskError):
                self._write()

    def _write(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        fresh = self._file.with_suffix(".tmp")
        try:
            fresh.touch(PRIVATE)
            with fresh.open("wb") as file:
                file.write(msgspec.json.encode(self._known))
                file.flush()
                flush(file.fileno())
            fresh.rename(self._file)
            sync_folder(self._file.parent)
        except OSError as error:
            raise DiskError(f"{self._file} cannot be written: {error.strerror}") from error
