"""Laws by vectors on runs in which groups form anew: what the reference says of them, they say."""

from __future__ import annotations

from random import Random

import msgspec
from tests.protocol.newtop.formation_storms import storm

from ordercast.check.laws import check
from ordercast.spark.columns import columns_of
from ordercast.spark.vector import judge_columns
from ordercast.trace.schema import Trace

KINDS = ("deliver", "submit", "view", "leave")


def test_formations_are_groups_of_their_own() -> None:
    broken = 0
    for seed in (1, 3, 5, 7):
        trace = storm(seed, requests=(2, 4), seconds=2).trace
        assert len({row.group for row in trace.rows if "+" in (row.group or "")})
        assert judge_columns(columns_of(trace)).verdicts == check(trace), seed
        draw = Random(seed)
        for _ in range(4):
            rows = list(trace.rows)
            kind = draw.choice(KINDS)
            del rows[draw.choice([at for at, row in enumerate(rows) if row.kind == kind])]
            spoilt = Trace(trace.header, rows)
            expected = check(spoilt)
            assert judge_columns(columns_of(spoilt)).verdicts == expected, (seed, kind)
            broken += any(verdict.witness for verdict in expected)
    assert broken > 5


def test_a_family_is_found_by_the_name_before_the_formation() -> None:
    trace = storm(1, requests=(2, 4), seconds=2).trace
    named = sorted({(row.group or "").partition("+")[0] for row in trace.rows if row.group})
    rows = [row for row in trace.rows if row.kind != "deliver" or row.process != "n2"]
    for family, answers in (("gossip", {"holds"}), ("total", {"holds", "broken"})):
        groups = [{"name": name, "family": family} for name in named] + [
            {"name": "nobody", "family": "fifo"}
        ]
        header = msgspec.structs.replace(trace.header, parameters={"group": groups})
        mixed = Trace(header, rows)
        verdicts = check(mixed)
        assert judge_columns(columns_of(mixed)).verdicts == verdicts
        assert {str(one.answer) for one in verdicts} == answers
