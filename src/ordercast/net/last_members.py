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
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

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
FEW_NAMES = 8
"""While fewer are remembered, each one more is durable before its step takes effect."""
GATHERING_SECONDS = 5.0


class LastMembers:
    def __init__(self, folder: Path, committer: Committer, incidents: Incidents) -> None:
        self._committer = committer
        self._incidents = incidents
        self._watched: set[str] = set()  # open groups that this node is in, or joins
        self._file = folder / "groups"
        # Names by group; of those that this node is not in, the one that it left last comes last.
        self._known: dict[str, tuple[str, ...]] = {}
        self._writing: asyncio.TimerHandle | None = None  # something will be written
        try:
            if self._file.exists():
                found = self._file.read_bytes()
                self._known = msgspec.json.decode(found, type=dict[str, tuple[str, ...]])
        except msgspec.DecodeError as error:
            raise UsageError(f"{self._file} is damaged: it should hold names by group") from error
        except OSError as error:
            raise UsageError(f"{self._file} cannot be read: {error.strerror}") from error
        self._durable = dict(self._known)  # what the file has

    def of(self, group: str) -> tuple[str, ...]:
        """Sorted; none: this node was never in the group, or has forgotten it."""
        return self._known.get(group, ())

    def has_been_alone(self, name: str) -> bool:
        """Whether this node was the only member of some group when it was last in it."""
        return (name,) in self._known.values()

    # --- groups come and go ------------------------------------------------------------------

    def watch(self, group: str, host: Host) -> None:
        """This node joins an open group: what its machine says of members is remembered."""
        self._watched.add(group)
        self._forget_oldest()
        host.remember = self._remember

    def left(self, group: str) -> None:
        """This node is not in the group any more."""
        self._watched.discard(group)
        if group in self._known:
            self._known[group] = self._known.pop(group)
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        left = [group for group in self._known if group not in self._watched]
        for group in left[:-MOST_LEFT]:
            del self._known[group]
            self._incidents.count("groups_forgotten")

    # --- members come and go -----------------------------------------------------------------

    def _remember(self, step: Step) -> Commit | None:
        """What must be on the disk before this step takes effect."""
        is_urgent = False
        for news in step.outputs:
            if isinstance(news, View | Joined | Left) and news.group in self._watched:
                group, before = news.group, self.of(news.group)
                few = isinstance(news, View) or len(before) < FEW_NAMES
                self._learn(group, remembered(before, news))
                if self._known[group] != self._durable.get(group):
                    is_urgent = is_urgent or few
                    self._write_soon()
        return self._write if is_urgent else None

    def note(self, group: str, names: Iterable[str]) -> None:
        """Who is in the group now, ourselves included."""
        self._learn(group, names)
        self._write_changes()

    def _learn(self, group: str, names: Iterable[str]) -> None:
        members = tuple(sorted(set(names)))
        if len(members) > MOST_NAMES:
            if len(self.of(group)) == MOST_NAMES:
                return  # enough of them to be sure that it is not us alone
            members = members[:MOST_NAMES]
        self._known[group] = members

    async def drop(self, name: str) -> list[str]:
        """Another node will not come back. Returns the groups in which it does not count any more.

        DiskError: it may count again after a restart.
        """
        groups = [group for group, names in self._known.items() if name in names]
        for group in groups:
            self._known[group] = tuple(each for each in self._known[group] if each != name)
        if groups:
            await self._committer.awaited(self._write)
        return groups

    def forget(self, done: Callable[[], None]) -> None:
        """Another incarnation begins, which was in no group. Calls `done` when that is durable."""
        self._known.clear()
        self._write(done)

    # --- the file ----------------------------------------------------------------------------

    def close(self) -> None:
        """What is not written yet is given to the committer, which is closed next."""
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

        self._committer.rewrite(self._file, msgspec.json.encode(written), durable)
