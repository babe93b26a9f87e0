"""The laws of durable feeds, on correct and on spoilt runs, against slow and obvious ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from tests.check.feed_runs import FeedRun, spoilt_feed

from ordercast.check.folders import FolderStart, numbered_folders
from ordercast.check.given_up import GivenUp, NumberSpans
from ordercast.check.history import PROMISES
from ordercast.check.laws import check
from ordercast.check.verdict import Answer
from ordercast.trace.schema import Row, Trace
from ordercast.trace.text import parse_history

RUNS = 300
SPOILT = 1500
CLAIMS = (*PROMISES["feed"].laws,)


def test_a_correct_feed_keeps_what_it_promises() -> None:
    seen: Counter[str] = Counter()
    for seed in range(RUNS):
        trace = FeedRun(seed, 15 + seed % 80, trims=seed % 3 > 0).trace()
        for verdict in check(trace):
            assert verdict.answer is Answer.HOLDS, (seed, verdict)
            seen[verdict.law] += 1
        for row in trace.rows:
            seen["range"] += row.after is not None
            seen["lost folder"] += row.cause == "empty"
            seen["reply"] += row.reply_number is not None
    assert {seen[law] for law in CLAIMS} == {RUNS}
    assert min(seen["range"], seen["lost folder"], seen["reply"]) > RUNS / 2


# --- oracles ---------------------------------------------------------------------------------


def segments(trace: Trace) -> Iterator[list[Row]]:
    """What each process wrote with one folder (one incarnation, where the family forgets)."""
    rows = sorted(trace.rows, key=lambda row: (row.process, row.incarnation, row.step))
    emptied = {
        (row.process, row.incarnation)
        for row in rows
        if row.kind == "start" and row.cause == "empty"
    }
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        folder = row.incarnation
        if trace.header.family == "feed":
            folder = sum((row.process, n) in emptied for n in range(row.incarnation + 1))
        found.setdefault((row.process, folder), []).append(row)
    yield from found.values()


def has(rows: list[Row], origin: str | None, number: int | None) -> bool:
    """Whether one of these delivers the event or gives it up."""
    return any(
        row.origin == origin
        and (
            (row.kind == "deliver" and row.number == number)
            or (row.kind == "lose" and is_lost(row, number))
        )
        for row in rows
    )


def is_lost(row: Row, number: int | None) -> bool:
    if row.after is None or row.number is None or number is None:
        return row.number == number
    return row.after < number < row.number or number == row.number


def reply_order_broken(trace: Trace) -> bool:
    answers = {
        (row.origin, row.number): (row.reply_origin, row.reply_number)
        for row in trace.rows
        if row.kind == "submit" and row.reply_number is not None
    }
    for rows in segments(trace):
        for at, row in enumerate(rows):
            if row.kind == "deliver":
                original = (row.reply_origin, row.reply_number)
                if row.reply_number is None:
                    original = answers.get((row.origin, row.number), original)
                if original[1] is not None and not has(rows[:at], *original):
                    return True
    return False


def silent_gap(trace: Trace) -> bool:
    logs = [
        [(row.origin, row.number) for row in rows if row.kind == "submit"]
        for rows in segments(trace)
    ]
    for rows in segments(trace):
        for at, row in enumerate(rows):
            for log in logs if row.kind == "deliver" else ():
                if (row.origin, row.number) in log:
                    earlier = [one for one in log if (one[1] or 0) < (row.number or 0)]
                    if not all(has(rows[:at], *one) for one in earlier):
                        return True
    return False


def not_durable(trace: Trace) -> bool:
    last = {rows[0].process: rows for rows in segments(trace)}
    last_submit = max((row.at for row in trace.rows if row.kind == "submit"), default=0)
    live = []
    for rows in last.values():
        end = [row for row in rows if row.incarnation == rows[-1].incarnation]
        ended = any(
            row.kind == "crash" or (row.kind == "stop" and row.at < last_submit) for row in end
        )
        if not ended and any(row.group for row in rows if row.kind not in ("parent", "leave")):
            live.append(rows)
    held = {(row.origin, row.number) for rows in live for row in rows if row.kind == "deliver"}
    return any(not has(rows, *one) for rows in live for one in held)


def has_circle(trace: Trace) -> bool:
    """At some instant, after all that is written then."""
    for now in {row.at for row in trace.rows if row.kind == "parent"}:
        parents: dict[str, str | None] = {}
        started: dict[str, tuple[int, int]] = {}
        for row in trace.rows:
            if row.at <= now:
                started[row.process] = max(
                    started.get(row.process, (-1, -1)), (row.incarnation, row.step)
                )
        for row in sorted(trace.rows, key=lambda row: (row.process, row.incarnation, row.step)):
            life = f"{row.process}#{row.incarnation}"
            if row.at > now or row.incarnation != started[row.process][0]:
                continue
            if row.kind == "parent":
                parents[life] = row.peer
            elif row.kind in ("crash", "stop"):
                parents.pop(life, None)
        for life in parents:
            above: str | None = parents[life]
            for _ in parents:
                if above == life:
                    return True
                above = parents.get(above or "")
    return False


ORACLES = {
    "reply-order": reply_order_broken,
    "no-silent-gap": silent_gap,
    "durable": not_durable,
}


def test_the_laws_say_what_slow_ones_say() -> None:
    seen: Counter[tuple[str, Answer]] = Counter()
    for seed in range(SPOILT):
        trace = spoilt_feed(seed)
        for verdict in check(trace, list(ORACLES)):
            seen[verdict.law, verdict.answer] += 1
            if verdict.answer is not Answer.UNKNOWN:
                expected = ORACLES[verdict.law](trace)
                assert (verdict.answer is Answer.BROKEN) == expected, (seed, verdict)
    for law in ORACLES:
        assert min(seen[law, Answer.BROKEN], seen[law, Answer.HOLDS]) > SPOILT / 10, seen


def test_circles_are_found_where_a_slow_look_finds_them() -> None:
    seen: Counter[tuple[bool, Answer]] = Counter()
    for seed in range(SPOILT):
        trace = spoilt_feed(seed)
        (verdict,) = check(trace, ["one-tree"])
        circle = has_circle(trace)
        seen[circle, verdict.answer] += 1
        says = "formed a circle" in verdict.why
        named = all(row.peer is None or "#" in row.peer for row in trace.rows)
        if named:
            assert says == circle, (seed, verdict)
    assert min(seen[True, Answer.BROKEN], seen[True, Answer.UNKNOWN]) > 10, seen
    assert seen[False, Answer.HOLDS] > SPOILT / 3, seen


# --- one tree --------------------------------------------------------------------------------

OVER = "n1 parent\nn2 parent peer=n1#0\nn1 parent peer=n2#0\nn1 parent\n"
"""A circle that is over again."""
STANDS = "n1 parent peer=n2#0\nn2 parent peer=n1#0\n"


@pytest.mark.parametrize(
    ("header", "rows", "answer", "why"),
    [
        ("seed=1 ending=finished", OVER, Answer.BROKEN, "n1 below n2#0, n2 below n1#0"),
        ("ending=finished", OVER, Answer.UNKNOWN, "if the clocks of these processes agree"),
        ("seed=1 ending=cut", OVER, Answer.UNKNOWN, "the rows that end it may lack"),
        ("seed=1 ending=cut", f"{OVER}n2 parent\n", Answer.BROKEN, "formed a circle"),
        ("ending=finished", STANDS, Answer.BROKEN, "formed a circle"),
        ("ending=cut", STANDS, Answer.UNKNOWN, "the rows that end it may lack"),
        ("ending=cut", "n1 parent\n", Answer.UNKNOWN, "the run is cut, not finished"),
        ("ending=cut", "n1 join\n", Answer.HOLDS, ""),
        (
            "seed=1 ending=finished",
            "n1 start\nn1 crash\nn1#1 start\nn2 parent peer=n1\nn1#1 parent peer=n2#0\n",
            Answer.UNKNOWN,
            "if each means the incarnation that ran at that time",
        ),
        (
            "seed=1 ending=finished",
            "n1 start\nn2 parent peer=n1#0\nn1 crash\nn1#1 parent peer=n2#0\nn2 parent\n",
            Answer.HOLDS,
            "",
        ),
        (  # n1 was killed: no row says so, but that it runs again
            "seed=1 ending=finished",
            "n2 parent\nn1 parent peer=n2#0\nn1#1 start\nn2 parent peer=n1#0\n"
            "n1#1 parent\nn2 parent peer=n1#1\n",
            Answer.HOLDS,
            "",
        ),
    ],
    ids=range(11),
)
def test_what_clocks_and_missing_rows_leave_open_is_unknown(
    header: str, rows: str, answer: Answer, why: str
) -> None:
    (verdict,) = check(parse_history(f"run tree {header}\n{rows}"), ["one-tree"])
    assert verdict.answer is answer
    assert why in verdict.why


def test_a_tree_is_looked_at_before_the_first_process_stops_in_the_quiet_phase() -> None:
    """One that stops earlier is no end, and what happens after the first stop is no matter."""
    times = 'start=0 parameters={"duration":"10ms","quiet":"10ms"}'
    text = f"run tree ending=finished {times}\nn1 parent\nn2 parent peer=n1#0\n"
    text += "n3 parent peer=n1#0\nn3 stop at=5ms\n"
    late = "n1 stop at=20ms\nn2 parent at=21ms\n"
    (verdict,) = check(parse_history(text + late), ["one-tree"])
    assert verdict.answer is Answer.HOLDS
    (verdict,) = check(parse_history(f"{text}n2 parent at=15ms\n{late}"), ["one-tree"])
    assert "n1 and n2 are both roots of g" in verdict.why


# --- what was given up, and folders ----------------------------------------------------------


def test_ranges_are_not_expanded() -> None:
    text = "run wide family=feed ending=finished\nn1 submit n1:5\nn1 deliver n1:5\n"
    wide = (1 << 62) - 1
    lose = f"n2 lose origin=n1 number={wide} after=0\n" * 3
    laws = ["agreement", "completeness", "causal", "durable", "no-silent-gap", "reply-order"]
    for verdict in check(parse_history(text + lose), laws):
        assert verdict.answer is Answer.HOLDS, verdict
    (verdict,) = check(parse_history(text), ["durable"])
    assert verdict.answer is Answer.HOLDS, "n2 has nothing to do with the group"
    (verdict,) = check(parse_history(f"{text}n2 lose n1:4 after=0\n"), ["durable"])
    assert verdict.answer is Answer.BROKEN


def test_spans_keep_what_was_noted_first_of_a_number() -> None:
    spans = NumberSpans()
    spans.add(5, 9, 1)
    spans.add(1, 20, 2)
    spans.add(7, 30, 3)
    spans.add(40, 39, 4)
    assert list(map(tuple, spans)) == [(1, 4, 2), (5, 9, 1), (10, 20, 2), (21, 30, 3)]
    assert [spans.find(number) for number in (0, 31)] == [None, None]
    given_up = GivenUp([(3, parse_history("run r\nn1 lose n2:7 after=9").rows[0])])
    assert given_up.when("g", "n2", 7) == 3, "`number` itself is always given up"
    assert given_up.when("h", "n2", 7) is None


@pytest.mark.parametrize(
    ("starts", "folders"),
    [
        ([("a", 1, False), ("a", 5, False), ("b", 2, False)], [0, 0, 1]),
        ([("a", 1, False), ("a", 5, True), ("a", 9, False)], [0, 1, 1]),
        ([("a", 7, True), ("a", 9, False), ("a", 1, False), ("a", 3, False)], [0, 0, 1, 1]),
        ([("a", 7, False), ("a", 1, False)], [0, 0]),  # no folder was lost: a clock that went back
        ([("a", 7, True), ("a", None, False), ("a", 1, False)], [0, 0, 1]),
        ([("a", None, False), ("a", 2, False), ("b", 1, True)], [0, 0, 1]),
    ],
    ids=range(6),
)
def test_incarnations_of_one_folder_are_neighbours(
    starts: list[tuple[str, int | None, bool]], folders: list[int]
) -> None:
    assert numbered_folders(FolderStart(*one) for one in starts) == folders
