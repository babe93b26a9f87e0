"""Entries for the tests of a group's log, and a program that writes until it is killed.

`python -m tests.store.group_log.logged FOLDER` appends and syncs without end, and says the tail on
its output after each sync.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.store.stored import CODEC, Latest

from ordercast.kernel.log import Appended, At, Bad, Entry
from ordercast.kernel.packet import Packet
from ordercast.store.group_log.entries import pack_entry
from ordercast.store.group_log.form import SEGMENT, find_files
from ordercast.store.group_log.log import GroupLog
from ordercast.store.group_log.writing import LogLimits

SMALL = LogLimits(segment=1 << 13, reserve=1 << 12, checkpoint=1 << 15)
BIRTH = 7
ROOT = Path(__file__).resolve().parents[3]


class Origins:
    """Makes the next entries of streams."""

    def __init__(self, birth: int = BIRTH) -> None:
        self.birth = birth
        self.numbers: dict[str, int] = {}

    def entry(self, origin: str, payload: bytes = b"payload", via: int = 0) -> Entry:
        before = self.numbers.get(origin, 0)
        self.numbers[origin] = before + 1
        payloads = [payload]
        size = len(payload)
        return Entry(
            origin, self.birth, before + 1, before, via, payloads=payloads, size=size, at=before
        )


def opened(folder: Path, limits: LogLimits = SMALL, group: str = "g") -> GroupLog:
    return GroupLog(folder, group, CODEC, limits=limits)


def persist(log: GroupLog, *records: Packet | Entry) -> None:
    log.append([Appended("g", each) if isinstance(each, Entry) else each for each in records])
    log.sync()


def everything(log: GroupLog) -> list[Entry | Bad]:
    """All that is there, from the floor on."""
    found: list[Entry | Bad] = []
    at = log.floor
    while at < log.tail:
        reading = log.read(At(at), 1 << 12)
        assert reading.first == at
        assert reading.entries
        found += reading.entries
        at += len(reading.entries)
    return found


def made(count: int, streams: int = 3, payload: bytes = b"payload") -> Iterator[Entry]:
    """The same entries each time."""
    origins = Origins()
    for number in range(count):
        yield origins.entry(f"n{number * number % streams}", payload + b"%d" % number)


def filled(folder: Path, count: int = 300, batch: int = 4) -> list[Entry]:
    """A log of several segments, closed."""
    entries = list(made(count, payload=b"p" * 100))
    log = opened(folder)
    for begin in range(0, count, batch):
        persist(log, *entries[begin : begin + batch])
    log.close()
    return entries


def spoil(folder: Path, *entries: Entry) -> None:
    """The frames of entries are not as they were written."""
    for path in find_files(folder, SEGMENT).values():
        data = bytearray(path.read_bytes())
        for entry in entries:
            place = data.find(pack_entry(entry))
            if place >= 0:
                data[place] ^= 1
        path.write_bytes(data)


def started(folder: Path) -> subprocess.Popen[str]:
    """This program."""
    command = [sys.executable, "-m", "tests.store.group_log.logged", str(folder)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)


def write_until_killed(folder: Path) -> None:
    log = opened(folder)
    origins = Origins()
    for (name, _), number in log.opened().received.items():
        origins.numbers[name] = number
    while True:
        entries = [origins.entry(f"n{log.tail % 5}", b"%d" % (log.tail + at)) for at in range(1)]
        entries += [origins.entry("other", b"%d" % (log.tail + 1 + at)) for at in range(4)]
        persist(log, *entries, Latest("g", "tail", log.tail + 5))
        print(log.tail, flush=True)


if __name__ == "__main__":
    write_until_killed(Path(sys.argv[1]))
