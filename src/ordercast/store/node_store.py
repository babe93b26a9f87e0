"""All that machines persist at one node: a log for each group that has one, and a file of records.

A commit belongs to one group: where that group has a log, all of it goes there. A log is opened
once, when its group is joined first, and stays open until the node is closed: an incarnation that
is abandoned, or leaves the group, leaves its log as it is, for what was accepted is not lost then.

The folder of a log has the group's name, in which unusual characters are written as `%2F` is; a
name that would be too long for a file system is cut, with a checksum. The log itself says whose it
is, so two groups cannot share one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote

from ordercast.errors import DiskError, UsageError
from ordercast.kernel.packet import Packet
from ordercast.store.file import FileStore, RecordCodec
from ordercast.store.group_log.log import GroupLog
from ordercast.store.group_log.writing import LogLimits

LOGS = "logs"
_LONGEST_NAME = 200
_MOST_SEGMENTS = 8
"""Parts of a log of limited size: only whole segments are given back."""
_LEAST_SEGMENT = 64 << 10


def log_folder(data: Path, group: str) -> Path:
    """Where the log of a group is, in a node's folder."""
    name = quote(group, safe="")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}~{blake2b(group.encode(), digest_size=8).hexdigest()}"
    return data / LOGS / name


def limits_for(size: int) -> LogLimits:
    """For a log that may have so many bytes; 0: any."""
    usual = LogLimits()
    if not size:
        return usual
    segment = min(usual.segment, max(_LEAST_SEGMENT, size // _MOST_SEGMENTS))
    return usual._replace(segment=segment, reserve=min(usual.reserve, segment))


class NodeStore:
    def __init__(self, folder: Path, codec: RecordCodec) -> None:
        """DiskError: the records cannot be read or written, or are damaged."""
        self.folder = folder
        self._codec = codec
        self._records = FileStore(folder, codec)
        self.logs: dict[str, GroupLog] = {}  # by group; never taken out before the end
        self._written: dict[str, GroupLog] = {}  # since the last sync, by the thread that writes

    def open_log(self, group: str, size: int, strained: Callable[[bool], None]) -> GroupLog:
        """The log of a group, which may have so many bytes (0: any). `strained` is called by the
        thread that writes. DiskError: it cannot be used."""
        if group not in self.logs:
            folder = log_folder(self.folder, group)
            self.logs[group] = GroupLog(
                folder, group, self._codec, limits=limits_for(size), strained=strained
            )
        return self.logs[group]

    def records(self, group: str | None = None) -> list[Packet]:
        """What is on the disk of a group that has no log, or of all such groups."""
        return self._records.records(group)

    # --- what the committer's thread does ----------------------------------------------------

    def append(self, records: Sequence[Packet]) -> None:
        log = self.logs.get(records[0].group) if records else None
        if log is None:
            self._records.append(records)
        else:
            log.append(records)
            self._written[log.group] = log

    def forget(self, group: str) -> None:
        """No record of the group counts any more; a log stays."""
        self._records.forget(group)

    def sync(self) -> None:
        self._records.sync()
        while self._written:
            _, log = self._written.popitem()
            log.sync()

    def close(self) -> None:
        self._records.close()
        for log in self.logs.values():
            log.close()


def opened_store(folder: Path, codec: RecordCodec) -> NodeStore:
    """As an application opens it. UsageError: it cannot be used, and why."""
    try:
        return NodeStore(folder, codec)
    except DiskError as error:
        raise UsageError(str(error)) from error
