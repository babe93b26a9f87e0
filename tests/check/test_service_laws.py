"""Laws by service, and laws about services and rest: against slow ones, and on spoilt runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import msgspec
import pytest
from tests.check import oracles, service_oracles
from tests.check.mutations import Mutation, change, delivers_both, local_pairs, places, renumbered
from tests.check.service_oracles import with_services
from tests.check.small_groups import SmallGroups
from tests.check.sound_runs import SoundRun
from tests.check.spoilt_runs import scrambled_views
from tests.check.test_oracles import random_trace
from tests.check.test_sound_runs import WITHOUT_NEWCOMERS

from ordercast.check.laws import LAWS, check
from ordercast.check.verdict import Answer
from ordercast.trace.schema import Ending, Row, Trace
from ordercast.trace.text import parse_history

CASES = 3000
SMALL_CASES = 1200


def answer(trace: Trace, law: str) -> Answer:
    """The law's answer; where it is broken and rows can show it, its witness alone shows it."""
    verdict = check(trace, [law])[0]
    if verdict.answer is Answer.BROKEN and law not in ("safe", "self-delivery"):
        again = check(Trace(trace.header, list(verdict.witness)), [law])[0]
        assert again.answer is Answer.BROKEN
    return verdict.answer


def compare(
    law: str,
    broken: Callable[[list[Row], bool], bool],
    *,
    causal: bool = False,
    made: Callable[[int], Trace] = random_trace,
) -> None:
    seen: Counter[bool] = Counter()
    for seed in range(CASES):
        trace = with_services(made(seed), transitional=0.3)
        if causal and oracles.no_creation_broken(trace.rows):
            continue
        if "view" in law and not any(row.kind == "view" for row in trace.rows):
            continue
        expected = broken(trace.rows, trace.header.family == "feed")
        seen[expected] += 1
        assert answer(trace, law) is (Answer.BROKEN if expected else Answer.HOLDS), seed
    assert min(seen[True], seen[False]) > CASES / 100, seen


def test_fifo_by_service() -> None:
    compare("fifo", service_oracles.fifo_broken)


def test_total_by_service() -> None:
    compare("total", service_oracles.total_broken)


def test_total_in_view_by_service() -> None:
    broken = service_oracles.total_in_view_broken
    compare("total-in-view", lambda rows, _: broken(rows), made=scrambled_views)


def test_optimistic_causal_by_service() -> None:
    compare("optimistic-causal", service_oracles.optimistic_causal_broken, causal=True)


def test_causal_by_service() -> None:
    compare("causal", service_oracles.causal_broken, causal=True)


def test_causal_in_view() -> None:
    compare("causal-in-view", service_oracles.causal_in_view_broken, causal=True)


@pytest.mark.parametrize("ending", [Ending.FINISHED, Ending.CUT])
def test_safe(ending: Ending) -> None:
    expected = {"": Answer.HOLDS, "open": Answer.UNKNOWN, "broken": Answer.BROKEN}
    seen: Counter[str] = Counter()
    for seed in range(SMALL_CASES):
        for trace in (
            with_services(SmallGroups(seed, ending).trace(), transitional=0.3),
            with_services(random_trace(seed), transitional=0.3),
        ):
            header = msgspec.structs.replace(trace.header, ending=ending)
            if not any(row.kind == "view" for row in trace.rows):
                continue
            found = service_oracles.safe_broken(trace.rows, finished=ending == Ending.FINISHED)
            seen[found] += 1
            assert answer(Trace(header, trace.rows), "safe") is expected[found], seed
    kinds = ("", "broken") if ending == Ending.FINISHED else ("", "open", "broken")
    assert min(seen[kind] for kind in kinds) > SMALL_CASES / 20, seen


def test_safe_events_without_any_view_are_unknown() -> None:
    text = "run blind ending=finished\nn1 submit n1:1 cause=safe\nn1 deliver n1:1 cause={}\n"
    assert answer(parse_history(text.format("safe")), "safe") is Answer.UNKNOWN
    text = text.replace("safe", "agreed")
    assert answer(parse_history(text.format("agreed")), "safe") is Answer.HOLDS


def test_self_delivery() -> None:
    seen: Counter[bool] = Counter()
    for seed in range(SMALL_CASES):
        trace = SmallGroups(seed).trace()
        expected = service_oracles.self_delivery_broken(trace.rows)
        seen[expected] += 1
        assert answer(trace, "self-delivery") is (Answer.BROKEN if expected else Answer.HOLDS), seed
    assert min(seen[True], seen[False]) > SMALL_CASES / 40, seen


def test_rest() -> None:
    seen: Counter[bool] = Counter()
    for seed in range(SMALL_CASES):
        for trace, begins in ((random_trace(seed), 15), (SmallGroups(seed).trace(), 20)):
            expected = service_oracles.rest_broken(trace.rows, begins)
            seen[expected] += 1
            assert answer(trace, "rest") is (Answer.BROKEN if expected else Answer.HOLDS), seed
    assert min(seen[True], seen[False]) > SMALL_CASES / 20, seen


@pytest.mark.parametrize(
    "header",
    [
        "start=0",
        'parameters={"duration":"1s","quiet":"1s"}',
        'start=0 parameters={"duration":"1s"}',
        'start=0 parameters={"duration":"1s","quiet":"soon"}',
    ],
)
def test_rest_is_unknown_where_the_header_does_not_say_when_it_begins(header: str) -> None:
    trace = parse_history(f"run r ending=finished {header}\nn1 view 1 n1\n")
    assert answer(trace, "rest") is Answer.UNKNOWN


def test_rest_is_asked_for_by_its_name_or_where_the_header_says_when() -> None:
    times = 'start=0 parameters={"duration":"1s","quiet":"1s"}'
    for header, asked in (("", False), (times, True)):
        trace = parse_history(f"run r ending=finished {header}\nn1 view 1 n1\n")
        assert ("rest" in {one.law for one in check(trace)}) is asked


def test_causal_order_does_not_imply_causal_in_view() -> None:
    """`causal` lets a newcomer do without what is older than it, whoever delivers that now."""
    text = "run old ending=finished\nn1 view 1 n1,n2\nn1 submit n1:1\nn1 submit n1:2\n"
    text += "n2 view 1 n1,n2\nn1 deliver n1:1\nn1 deliver n1:2\nn2 deliver n1:2\n"
    answers = [one.answer for one in check(parse_history(text), ["causal", "causal-in-view"])]
    assert answers == [Answer.HOLDS, Answer.BROKEN]


# --- sound runs with services, and what spoils them --------------------------------------------


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("faults", [False, True])
def test_a_correct_run_with_services_keeps_every_law(groups: int, faults: bool) -> None:
    for seed in range(100):
        run = SoundRun(seed, faults=faults, groups=groups, size=20 + seed % 80).trace()
        for verdict in check(with_services(run), list(LAWS)):
            late = faults and verdict.law in WITHOUT_NEWCOMERS
            assert late or verdict.answer is Answer.HOLDS, (seed, verdict)


MUTATIONS: list[tuple[str, Mutation]] = []


def breaks(*laws: str) -> Callable[[Mutation], Mutation]:
    def note(mutation: Mutation) -> Mutation:
        MUTATIONS.extend((law, mutation) for law in laws)
        return mutation

    return note


@breaks("safe")
def drop_a_safe_delivery(rows: list[Row], chance: Random) -> list[Row] | None:
    """One that somebody else has as well, who saw the one without it in its view."""
    shared = [
        at
        for at in places(rows, "deliver")
        if rows[at].cause == "safe" and sum(delivers_both(rows, at, at)) > 1
    ]
    at = chance.choice(shared or [-1])
    return None if at < 0 else rows[:at] + rows[at + 1 :]


@breaks("self-delivery")
def forget_an_own_event(rows: list[Row], chance: Random) -> list[Row] | None:
    own = [at for at in places(rows, "deliver") if rows[at].origin == rows[at].process]
    at = chance.choice(own or [-1])
    return None if at < 0 else rows[:at] + rows[at + 1 :]


def pairs_of_one_origin(rows: list[Row], *services: str | None) -> list[tuple[int, int]]:
    return [
        (one, other)
        for one, other in local_pairs(rows, "deliver", "view")
        if rows[one].kind == rows[other].kind == "deliver"
        and (rows[one].group, rows[one].origin) == (rows[other].group, rows[other].origin)
        and {rows[one].cause, rows[other].cause}.issubset(services)
    ]


@breaks("causal-in-view", "causal", "optimistic-causal", "fifo")
def swap_in_a_view(rows: list[Row], chance: Random) -> list[Row] | None:
    pairs = pairs_of_one_origin(rows, None, "causal", "agreed", "safe")
    return swapped(rows, chance.choice(pairs)) if pairs else None


@breaks("fifo")
def swap_basic_ones(rows: list[Row], chance: Random) -> list[Row] | None:
    pairs = pairs_of_one_origin(rows, "basic")
    return swapped(rows, chance.choice(pairs)) if pairs else None


@breaks("rest")
def suspect_late(rows: list[Row], chance: Random) -> list[Row] | None:
    row = chance.choice(rows)
    return [*rows, change(row, kind="suspect", peer="n1", at=1_500_000_000, group=None)]


@breaks("rest")
def change_the_view_late(rows: list[Row], chance: Random) -> list[Row] | None:
    at = chance.choice(places(rows, "view"))
    return [*rows, change(rows[at], at=1_500_000_001)]


def swapped(rows: list[Row], pair: tuple[int, int]) -> list[Row]:
    one, other = pair
    new = list(rows)
    new[one], new[other] = rows[other], rows[one]
    return new


@pytest.mark.parametrize(
    ("law", "mutation"), MUTATIONS, ids=[f"{law}-{one.__name__}" for law, one in MUTATIONS]
)
def test_a_run_with_a_planted_mistake_breaks_its_law(law: str, mutation: Mutation) -> None:
    spoilt = 0
    for seed in range(150):
        trace = with_services(SoundRun(seed, faults=False, groups=1 + seed % 2, size=60).trace())
        rows = mutation(trace.rows, Random(seed))
        if rows is None:
            continue
        spoilt += 1
        verdict = check(Trace(trace.header, renumbered(rows)), [law])[0]
        assert verdict.answer is Answer.BROKEN, seed
        assert verdict.witness
        assert verdict.why
    assert spoilt >= 20


@pytest.mark.parametrize("law", ["total", "total-in-view", "causal", "optimistic-causal"])
def test_basic_events_may_come_in_any_order_of_their_own(law: str) -> None:
    spoilt = 0
    for seed in range(150):
        trace = with_services(SoundRun(seed, faults=False, size=60).trace())
        rows = swap_basic_ones(trace.rows, Random(seed))
        if rows is not None:
            spoilt += 1
            verdict = check(Trace(trace.header, renumbered(rows)), [law])[0]
            assert verdict.answer is Answer.HOLDS, seed
    assert spoilt >= 20
