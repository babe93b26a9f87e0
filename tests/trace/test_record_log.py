"""The writer of a recording on a failing disk. What it writes: tests/net/test_recorder.py."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.store.stored import Breaking

from ordercast.errors import DiskError
from ordercast.trace.record_log import RecordLog
from ordercast.trace.recording import Follower, Record, find_segments, read_records

SMALL = 1 << 12
CALLS = {"write": 30, "fsync": 20, "open": 4, "rename": 2}
"""So often each is called until three segments were begun, at the least."""
FAILURES = [(call, at) for call, count in CALLS.items() for at in range(count)]


def record(number: int) -> Record:
    return Record(0, "deliver", 5, "r", 1, "g", "n1", 0, number, payloads=[b"." * 1000])


def numbers_in(folder: Path) -> list[int | None]:
    end = Follower(folder).latest
    return [each.number for each in read_records(folder, 0, end)]


@pytest.mark.parametrize(("call", "at"), FAILURES)
def test_after_a_failure_of_any_system_call_nothing_is_written_and_nothing_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, at: int
) -> None:
    """The record of the failure is found or not; all before it are, and the next process goes on.

    A sync that failed would succeed the next time, and say nothing of what the system forgot.
    """
    log = RecordLog(tmp_path, segment_bytes=SMALL)
    done = [1]
    log.append([record(1)])
    number = errno.EROFS if call == "open" else errno.EIO
    with monkeypatch.context() as broken:
        broken.setattr(os, call, Breaking(getattr(os, call), at, number))
        with pytest.raises(DiskError, match=f"cannot be written: {os.strerror(number)}"):
            while len(done) < 1000:
                log.append([record(done[-1] + 1)])
                done.append(done[-1] + 1)
        for _ in range(2):
            with pytest.raises(DiskError, match="the recording is closed"):
                log.append([record(1000)])
    log.close()
    assert {path.suffix for path in tmp_path.iterdir()} == {".segment", ""}  # and the lock
    assert numbers_in(tmp_path) in (done, [*done, done[-1] + 1])
    again = RecordLog(tmp_path, segment_bytes=SMALL)
    again.append([record(2000)])
    again.close()
    assert numbers_in(tmp_path)[-1] == 2000


def test_a_failure_while_a_recording_is_opened_is_reported_and_frees_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RecordLog(tmp_path)
    log.append([record(1)])
    log.close()
    (segment,) = (path for _, path in find_segments(tmp_path))
    with segment.open("ab") as file:
        file.write(b"torn")  # so that it is written to
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", Breaking(os.fsync, 0, errno.EIO))
        with pytest.raises(DiskError, match="cannot be written: Input/output error"):
            RecordLog(tmp_path)
    RecordLog(tmp_path).close()
    assert numbers_in(tmp_path) == [1]
