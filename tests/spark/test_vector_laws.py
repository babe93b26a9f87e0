"""Laws by vectors against the plain reference: every verdict equal, witness and words included.

The traces: all handwritten histories, random ones that nobody made sound, sound runs, and sound
runs spoilt in every way that one or two rows allow. That the vectors do the work themselves is
claimed too: on sound runs, and on most broken ones, the reference sees only a few rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pytest
from tests.check.mutations import MUTATIONS, renumbered
from tests.check.service_oracles import with_services
from tests.check.small_groups import SmallGroups
from tests.check.spoilt_runs import scrambled_views, sound, spoilt, with_header
from tests.check.test_oracles import random_tickets, random_trace

from ordercast.check.law import LawForm
from ordercast.check.laws import LAWS, check
from ordercast.check.verdict import Answer
from ordercast.spark.columns import columns_of
from ordercast.spark.vector import Vectors, judge_columns
from ordercast.trace.schema import Ending, Header, Row, Trace, TraceLevel
from ordercast.trace.text import parse_history
from ordercast.types import event_number

HISTORIES = sorted((Path(__file__).resolve().parents[1] / "histories").glob("*.history"))
SPOILT = 1200
RANDOM = 350
ALL = list(LAWS)


def compare(trace: Trace, what: object) -> Vectors:
    """Every law, asked of both."""
    vectors = Vectors(columns_of(trace))
    for expected in check(trace, ALL):
        assert vectors.judge(LAWS[expected.law]) == expected, what
    return vectors


@pytest.mark.parametrize("path", HISTORIES, ids=[path.stem for path in HISTORIES])
def test_vectors_judge_every_handwritten_history_as_the_reference(path: Path) -> None:
    trace = parse_history(path.read_text(encoding="utf-8"), path.name)
    compare(trace, path.name)
    for family in ("feed", "causal"):
        for ending in Ending:
            compare(with_header(trace, family=family, ending=ending), (family, ending))


# Their rows are in mutations.py and in test_feed_vectors.py.
NOT_RANDOM = ("one-primary", "reply-order", "one-tree")


def test_vectors_judge_random_traces_as_the_reference() -> None:
    answers: Counter[tuple[str, Answer]] = Counter()
    for seed in range(RANDOM):
        for trace in (
            random_trace(seed),
            SmallGroups(seed).trace(),
            random_tickets(seed),
            scrambled_views(seed),
            with_services(SmallGroups(seed).trace(), transitional=0.2),
        ):
            compare(trace, (trace.header.run, seed))
            answers.update((one.law, one.answer) for one in check(trace, ALL))
    for law in ALL:  # none of these has primary views, replies or parents
        assert answers[law, Answer.BROKEN] > 5 or law in NOT_RANDOM, law
        assert answers[law, Answer.HOLDS] > 20, law


def test_vectors_leave_hardly_a_row_of_a_sound_run_to_the_reference() -> None:
    """Neither for want of a proof nor because proofs are vague: the whole run is never asked for,
    and where deliveries are judged not one row is left."""
    for seed in range(120):
        trace = sound(seed, size=120)
        vectors = compare(trace, seed)
        for law in ALL:
            rows_seen = vectors.select(LAWS[law])
            newcomers = law == "causal-in-view" and seed % 2  # do without what is older than they
            assert newcomers or vectors.form(LAWS[law]) is LawForm.VECTOR, (seed, law)
            if law in ("no-creation", "no-duplication", "fifo", "total", "total-in-view"):
                assert not len(rows_seen), (seed, law)
            if law in ("optimistic-causal", "causal"):
                assert not len(rows_seen), (seed, law)
            if law in ("agreement", "completeness"):
                assert np.array_equal(rows_seen, vectors.facts.skeleton), (seed, law)


# These rows are not in such traces: they are spoilt in test_services.py and in the tests of feeds.
NOT_SPOILT = ("safe", "rest", "one-primary", "reply-order", "one-tree")


def test_vectors_judge_runs_with_planted_mistakes_as_the_reference() -> None:
    broken: Counter[str] = Counter()
    whole = 0
    for seed in range(SPOILT):
        trace = spoilt(seed)
        vectors = compare(trace, seed)
        broken.update(one.law for one in check(trace, ALL) if one.answer is Answer.BROKEN)
        asked = ("fifo", "total", "agreement", "causal")
        whole += sum(vectors.form(LAWS[law]) is LawForm.PLAIN for law in asked)
    for law in ALL:  # services and rest are spoilt in test_services.py
        assert broken[law] >= 8 or law in NOT_SPOILT, (law, broken)
    assert whole < SPOILT / 4  # a causal law of a run in which something came before itself


@pytest.mark.parametrize(
    "mutation", {one.__name__: one for _, one in MUTATIONS}.values(), ids=lambda one: one.__name__
)
def test_vectors_judge_known_mistakes_as_the_reference(
    mutation: Callable[..., list[Row] | None],
) -> None:
    tried = 0
    for seed in range(8):
        trace = sound(seed, size=40, faults=seed % 2 == 1 and "view" in mutation.__name__)
        rows = mutation(trace.rows, Random(seed))
        if rows is not None:
            compare(Trace(trace.header, renumbered(rows)), seed)
            tried += 1
    assert tried


def test_the_order_of_rows_and_the_clocks_do_not_matter() -> None:
    """Logs one after the other, logs backwards, and clocks that are off by more than a message
    takes: pasts are those of the rows."""
    for seed in range(60):
        trace = spoilt(seed) if seed % 3 else sound(seed)
        chance = Random(seed)
        skew = {row.process: chance.randint(-5000, 5000) for row in trace.rows}
        skewed = [msgspec.structs.replace(row, at=row.at + skew[row.process]) for row in trace.rows]
        by_process = sorted(skewed, key=lambda row: row.process)
        for rows in (trace.rows[::-1], by_process, by_process[::-1]):
            compare(Trace(trace.header, rows), seed)
        if not seed % 3:
            assert Vectors(columns_of(Trace(trace.header, by_process))).facts.has_clock


def test_distant_numbers_and_many_incarnations_are_judged_as_by_the_reference() -> None:
    rows: list[Row] = []
    for turn in range(40):
        for counter in (1, 1 << 39):
            event = {"group": "g", "origin": "n1", "number": event_number(turn, counter)}
            for name, kind in (("n1", "submit"), ("n1", "deliver"), ("n2", "deliver")):
                row = Row(name, turn, len(rows), len(rows), kind, **event)  # type: ignore[arg-type]
                rows.append(row)
    trace = Trace(Header("far", family="feed", ending=Ending.FINISHED), rows)
    assert compare(trace, "far").judge(LAWS["causal"]).answer is Answer.HOLDS
    vectors = compare(Trace(trace.header, rows[:100] + rows[103:]), "far, and one is missing")
    assert vectors.judge(LAWS["causal"]).answer is Answer.BROKEN


def test_gaps_in_numbers_are_judged_as_by_the_reference() -> None:
    """n3 never got n1:1, and passes on what depends on it; n4 delivers them the wrong way round.
    Direct deliveries do not show it: the past has to be followed."""
    text = "run gap ending=finished\nn1 submit n1:1\nn2 deliver n1:1\nn2 submit n2:1\n"
    text += "n3 deliver n2:1\nn3 submit n3:1\nn4 deliver n3:1\nn4 deliver n1:1\n"
    trace = parse_history(text)
    compare(trace, "gap")
    verdict = Vectors(columns_of(trace)).judge(LAWS["optimistic-causal"])
    assert verdict.answer is Answer.BROKEN


def test_total_without_a_known_order_is_merged() -> None:
    """Gaps hide the order from times: n3 delivers b long before anybody delivers a."""
    text = "run late ending=finished\nn3 deliver n9:2\nn3 deliver n9:3\nn1 deliver n9:1\n"
    text += "n1 deliver n9:2\nn2 deliver n9:1\nn2 deliver n9:3\n"
    vectors = compare(parse_history(text), "late")
    assert vectors.judge(LAWS["total"]).answer is Answer.HOLDS
    assert not len(vectors.select(LAWS["total"]))


def test_contradicting_orders_at_one_time_prove_nothing() -> None:
    text = "run tie ending=finished\nn1 deliver n9:1 at=5\nn1 deliver n9:2 at=5\n"
    text += "n2 deliver n9:2 at=5\nn2 deliver n9:1 at=5\n"
    assert compare(parse_history(text), "tie").judge(LAWS["total"]).answer is Answer.BROKEN


def test_an_event_submitted_at_the_time_of_a_join_is_not_exempt() -> None:
    text = "run instant ending=finished\nn1 submit n1:1 at=5\nn2 join at=5\n"
    text += "n1 submit n1:2 at=6\nn2 deliver n1:2 at=7\n"
    assert compare(parse_history(text), "instant").judge(LAWS["causal"]).answer is Answer.BROKEN
    earlier = text.replace("n1:1 at=5", "n1:1 at=4")
    assert compare(parse_history(earlier), "before it").judge(LAWS["causal"]).answer is Answer.HOLDS


def test_events_reported_as_lost_are_not_left_to_the_reference() -> None:
    text = "run given-up ending=finished\nn1 join\nn2 join\nn3 join\n"
    for number in range(1, 9):
        text += f"n1 submit n1:{number}\nn1 deliver n1:{number}\nn3 deliver n1:{number}\n"
        text += f"n2 lose n1:{number}\n"
    vectors = compare(parse_history(text), "given up")
    assert vectors.judge(LAWS["agreement"]).answer is Answer.HOLDS
    assert np.array_equal(vectors.select(LAWS["agreement"]), vectors.facts.skeleton)


def test_an_exemption_in_the_middle_hides_no_later_gap() -> None:
    """By n1's clock, which went back, only its second event is older than n2. Leaving that out is
    no break, but leaving out the fourth is."""
    text = "run exempt ending=finished\nn1 submit n1:1 at=10\nn1 submit n1:2 at=1\n"
    text += "n1 submit n1:3 at=20\nn1 submit n1:4 at=30\nn1 submit n1:5 at=40\nn2 join at=5\n"
    text += "n2 deliver n1:1 at=50\nn2 deliver n1:3 at=60\n"
    trace = parse_history(text)
    assert compare(trace, "one left out").judge(LAWS["causal"]).answer is Answer.HOLDS
    trace = parse_history(text + "n2 deliver n1:5 at=70\n")
    assert compare(trace, "two left out").judge(LAWS["causal"]).answer is Answer.BROKEN


def test_events_reported_as_lost_decide_which_member_agreement_names() -> None:
    """n1 and n2 lack the same events. n1 gave up one that nobody delivered, so it is looked at by
    itself, and first; it is not connected with n3."""
    text = "run given-up ending=finished\nn0 join\nn1 join\nn2 join\nn3 join\nn4 join\n"
    text += "n0 lose n3:8\nn0 crash\nn1 suspect peer=n3\nn3 submit n3:1\n"
    text += "".join(f"n{number} deliver n3:1\n" for number in range(1, 5))
    text += "n3 submit n3:2\nn3 deliver n3:2\nn4 submit n4:1\nn4 deliver n4:1\n"
    vectors = compare(parse_history(text + "n1 lose n3:9\n"), "given up")
    assert "n1, which stayed" in vectors.judge(LAWS["agreement"]).why
    vectors = compare(parse_history(text), "not given up")
    assert "n2, which stayed" in vectors.judge(LAWS["agreement"]).why


def test_a_member_that_stopped_before_the_last_submission_has_to_deliver_nothing() -> None:
    """The last is delivered by nobody, and so no law about deliveries would keep its rows."""
    text = "run stopped ending=finished\nn1 join at=1\nn2 join at=1\nn3 join at=1\n"
    text += "n1 submit n1:1 at=40\nn1 deliver n1:1 at=40\nn3 deliver n1:1 at=45\n"
    late = "n1 submit n1:2 at=60\nn1 crash at=61\n"
    vectors = compare(parse_history(text + "n2 stop at=50\n" + late), "stopped before it")
    assert vectors.judge(LAWS["agreement"]).answer is Answer.HOLDS
    vectors = compare(parse_history(text + "n2 stop at=60\n" + late), "stopped with it")
    assert vectors.judge(LAWS["agreement"]).answer is Answer.BROKEN


def test_a_cycle_at_one_time_is_found() -> None:
    """Each delivers the other's event before it submits its own: no clock allows that, and one that
    stands still does not show that nothing is wrong."""
    text = "run circle ending=finished\nn1 deliver n2:1 at=5\nn1 submit n1:1 at=5\n"
    text += "n2 deliver n1:1 at=5\nn2 submit n2:1 at=5\n"
    vectors = compare(parse_history(text), "circle")
    assert vectors.judge(LAWS["no-creation"]).answer is Answer.BROKEN


@pytest.mark.parametrize("later", ["", "n3#1 submit n3#1:1\n"], ids=["another", "restarted"])
def test_only_the_log_of_its_own_origin_shows_a_creation(later: str) -> None:
    """The end of n3's log may be lost, whatever follows it in other logs: the break is that n4 went
    on beyond what it never submitted."""
    text = f"run cut ending=cut\nn3 submit n3:1\n{later}n1 deliver n3:5\n"
    vectors = compare(parse_history(text), "nothing but what may be lost")
    assert vectors.judge(LAWS["no-creation"]).answer is Answer.UNKNOWN
    vectors = compare(parse_history(text + "n1 deliver n4:1\nn4 submit n4:2\n"), "and a break")
    verdict = vectors.judge(LAWS["no-creation"])
    assert verdict.answer is Answer.BROKEN
    assert "n4:1" in verdict.why


def test_one_loss_in_the_middle_is_a_failure() -> None:
    """What a family promises only when nothing fails is not asked of such a run."""
    text = "run lost family=causal ending=finished\nn1 join\nn2 join\n"
    text += "".join(f"n1 submit n1:{one}\nn1 deliver n1:{one}\n" for one in (1, 2, 3))
    calm = parse_history(text + "n2 deliver n1:1\nn2 deliver n1:2\nn2 deliver n1:3\n")
    lossy = parse_history(text + "n2 deliver n1:1\nn2 lose n1:2\nn2 deliver n1:3\n")
    asked = []
    for trace in (calm, lossy):
        verdicts = judge_columns(columns_of(trace)).verdicts
        assert verdicts == check(trace)
        asked.append({one.law for one in verdicts})
    assert asked[1] < asked[0]


def test_vectors_leave_few_rows_of_a_large_broken_run_to_the_reference() -> None:
    trace = sound(4, size=600, faults=False)
    rows = list(trace.rows)
    places = [at for at, row in enumerate(rows) if row.kind == "deliver"]
    rows.append(rows[places[-1]])
    vectors = compare(Trace(trace.header, renumbered(rows)), "doubled")
    rows_seen = vectors.select(LAWS["no-duplication"])
    assert rows_seen is not None
    assert len(rows_seen) == 2
    rows = [row for at, row in enumerate(rows[:-1]) if at != places[len(places) // 2]]
    vectors = compare(Trace(trace.header, renumbered(rows)), "dropped")
    rows_seen = vectors.select(LAWS["agreement"])
    assert rows_seen is not None
    assert len(rows_seen) < len(rows) / 4


def test_each_group_is_judged_by_its_own_family() -> None:
    for seed in range(40):
        trace = spoilt(3 * seed + 2)
        groups = [{"name": f"g{n}", "family": ["causal", "feed", "total"][n]} for n in range(3)]
        mixed = with_header(trace, parameters={"group": groups})
        assert judge_columns(columns_of(mixed)).verdicts == check(mixed), seed
        alone = with_header(trace, parameters={"group": [dict(groups[0], family="sequenced")]})
        assert judge_columns(columns_of(alone)).verdicts == check(alone), seed
        assert judge_columns(columns_of(trace)).verdicts == check(trace), seed


def test_laws_about_untraced_rows_are_unknown_and_about_absent_ones_hold() -> None:
    vectors = compare(with_header(sound(1), level=TraceLevel.OFF), "off")
    assert {vectors.judge(LAWS[law]).answer for law in ALL} == {Answer.UNKNOWN}
    vectors = compare(Trace(Header("nothing", ending=Ending.FINISHED), []), "empty")
    assert {vectors.judge(LAWS[law]).answer for law in ALL} == {Answer.HOLDS}  # nothing is no break
