"""The laws against slow and obvious ones, on thousands of small traces that nobody made sound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from tests.check import oracles
from tests.check.small_groups import SmallGroups

from ordercast.check.laws import check
from ordercast.check.verdict import Answer
from ordercast.trace.schema import CAUSES, Ending, Header, Row, Trace
from ordercast.types import event_number

CASES = 4000
MEMBERSHIP_CASES = 1500  # their oracles look at every row for every row


def random_trace(seed: int) -> Trace:
    """A few processes that submit, deliver what they like, restart, and install views."""
    chance = Random(seed)
    names = ["n1", "n2", "n3", "n4"][: chance.randint(2, 4)]
    groups = ["g", "h"][: chance.randint(1, 2)]
    incarnations = dict.fromkeys(names, 0)
    counters: Counter[tuple[str, int, str]] = Counter()
    submitted: list[tuple[str, str, int]] = []
    rows: list[Row] = []
    had: set[tuple[object, ...]] = set()
    for at in range(chance.randint(4, 30)):
        name, group = chance.choice(names), chance.choice(groups)
        columns: dict[str, Any] = {"group": group}
        draw = chance.random()
        if draw < 0.3:
            kind = "submit"
            counters[name, incarnations[name], group] += 1
            number = event_number(incarnations[name], counters[name, incarnations[name], group])
            columns |= {"origin": name, "number": number}
            submitted.append((group, name, number))
        elif draw < 0.88 and submitted:
            kind = "deliver"
            group, origin, number = chance.choice(submitted)
            columns = {"group": group, "origin": origin, "number": number + (draw < 0.31)}
            key = name, incarnations[name], *columns.values()
            if key in had and chance.random() < 0.9:
                continue
            had.add(key)
        elif draw < 0.96:
            kind = "view"
            columns |= {"view": chance.randint(1, 2), "members": tuple(names)}
        else:
            incarnations[name] += 1
            kind, columns = "start", {}
        rows.append(Row(name, incarnations[name], at + 1, at, kind, **columns))
    family = chance.choice(["feed", "total"])
    times = {"duration": "10ns", "quiet": "10ns"}
    return Trace(Header(f"random-{seed}", family, times, start=0, ending=Ending.FINISHED), rows)


NEEDS_EVERY_ROW = {"no-duplication", "fifo", "optimistic-causal", "total", "total-in-view"}
"""The others also break when a row is missing, so less may break them in another way."""


def answer(trace: Trace, law: str) -> Answer:
    """The law's answer; where it is broken, its witness alone must show it, and no less."""
    verdict = check(trace, [law])[0]
    if verdict.answer is Answer.BROKEN:
        again = check(Trace(trace.header, list(verdict.witness)), [law])[0]
        assert again.answer is Answer.BROKEN
        assert len(again.witness) <= len(verdict.witness)
    if verdict.answer is Answer.BROKEN and law in NEEDS_EVERY_ROW:
        for left_out in verdict.witness:
            rest = [row for row in verdict.witness if row is not left_out]
            assert check(Trace(trace.header, rest), [law])[0].answer is not Answer.BROKEN
    return verdict.answer


def compare(law: str, oracle: object, *, causal: bool = False, durable: bool = True) -> None:
    seen: Counter[bool] = Counter()
    for seed in range(CASES):
        trace = random_trace(seed)
        if causal and oracles.no_creation_broken(trace.rows):
            assert answer(trace, law) is not Answer.HOLDS, seed
            continue
        arguments = (trace.rows, trace.header.family == "feed") if durable else (trace.rows,)
        expected = oracle(*arguments)  # type: ignore[operator]
        seen[expected] += 1
        assert answer(trace, law) is (Answer.BROKEN if expected else Answer.HOLDS), seed
    assert min(seen[True], seen[False]) > CASES / 40, seen


def test_no_creation() -> None:
    compare("no-creation", oracles.no_creation_broken, durable=False)


def test_no_duplication() -> None:
    compare("no-duplication", oracles.no_duplication_broken)


def test_fifo() -> None:
    compare("fifo", oracles.fifo_broken)


def test_optimistic_causal() -> None:
    compare("optimistic-causal", oracles.optimistic_causal_broken, causal=True)


def test_causal() -> None:
    compare("causal", oracles.causal_broken, causal=True)


def test_total() -> None:
    compare("total", lambda rows, durable: oracles.shortest_disorder(rows, durable) > 0)


def compare_with_views(law: str, broken: Callable[[list[Row]], bool]) -> None:
    """But for traces with traffic and no view at all."""
    seen: Counter[bool] = Counter()
    for seed in range(CASES):
        trace = random_trace(seed)
        if any(row.kind == "view" for row in trace.rows):
            expected = broken(trace.rows)
            seen[expected] += 1
            answered = check(trace, [law])[0].answer
            assert answered is (Answer.BROKEN if expected else Answer.HOLDS), seed
            if law in NEEDS_EVERY_ROW:
                answer(trace, law)
    assert min(seen[True], seen[False]) > CASES / 100, seen


def test_total_in_view() -> None:
    compare_with_views("total-in-view", oracles.total_in_view_broken)


def test_virtual_synchrony() -> None:
    compare_with_views("virtual-synchrony", oracles.virtual_synchrony_broken)


def test_total_shows_a_shortest_cycle_where_two_orders_contradict() -> None:
    """And three wherever three is the least, as far as the heads of the logs can show it."""
    lengths: Counter[int] = Counter()
    for seed in range(CASES):
        trace = random_trace(seed)
        shortest = oracles.shortest_disorder(trace.rows, trace.header.family == "feed")
        witness = check(trace, ["total"])[0].witness
        lengths[shortest] += 1
        assert len(witness) == 2 * shortest, seed
    assert lengths[2] > 100
    assert lengths[3] > 3


# --- who stayed with whom ---


def compare_membership(law: str, broken: Callable[[list[Row]], bool]) -> None:
    """On finished runs, those with traffic and no view row left aside where views are judged."""
    seen: Counter[bool] = Counter()
    for seed in range(MEMBERSHIP_CASES):
        trace = SmallGroups(seed).trace()
        if "view" in law and not any(row.kind == "view" for row in trace.rows):
            continue
        expected = broken(trace.rows)
        seen[expected] += 1
        verdict = check(trace, [law])[0]
        assert verdict.answer is (Answer.BROKEN if expected else Answer.HOLDS), seed
    assert min(seen[True], seen[False]) > MEMBERSHIP_CASES / 20, seen


def test_agreement() -> None:
    compare_membership("agreement", oracles.agreement_broken)


def test_completeness() -> None:
    compare_membership("completeness", oracles.completeness_broken)


def test_disjoint_views() -> None:
    compare_membership("disjoint-views", oracles.disjoint_views_broken)


def test_view_agreement() -> None:
    def broken(rows: list[Row]) -> bool:
        return oracles.installed_outside(rows) or bool(oracles.different_views(rows))

    compare_membership("view-agreement", broken)


def test_view_agreement_of_truncated_runs() -> None:
    """Who has fewer views may have installed them later; who has others may not."""
    seen: Counter[Answer] = Counter()
    for seed in range(MEMBERSHIP_CASES):
        trace = SmallGroups(seed, Ending.CUT).trace()
        if any(row.kind == "view" for row in trace.rows):
            found = oracles.different_views(trace.rows)
            expected = Answer.UNKNOWN if found else Answer.HOLDS
            if "apart" in found or oracles.installed_outside(trace.rows):
                expected = Answer.BROKEN
            seen[expected] += 1
            assert check(trace, ["view-agreement"])[0].answer is expected, seed
    assert min(seen[answer] for answer in Answer) > MEMBERSHIP_CASES / 40, seen


# --- tickets ---


def random_tickets(seed: int) -> Trace:
    chance = Random(seed)
    rows: list[Row] = []
    incarnations = dict.fromkeys(["n1", "n2", "n3"], 0)
    for at in sorted(chance.randint(0, 30) for _ in range(chance.randint(2, 9))):
        name = chance.choice(list(incarnations))
        if chance.random() < 0.1:
            incarnations[name] += 1
        place = name, incarnations[name], len(rows), at
        if chance.random() < 0.1:
            rows.append(Row(*place, chance.choice(["crash", "stop"])))
            incarnations[name] += 1
        else:
            until = at + chance.randint(0, 9) if chance.random() < 0.8 else None
            cause = chance.choice(CAUSES["ticket"])
            index = chance.choice([0, 0, 1])
            rows.append(Row(*place, "ticket", group="g", index=index, cause=cause, until=until))
    return Trace(Header(f"tickets-{seed}", ending=Ending.CUT), rows)


def test_ticket_ownership() -> None:
    seen: Counter[bool] = Counter()
    for seed in range(CASES):
        trace = random_tickets(seed)
        expected = oracles.shared_ticket(trace.rows)
        seen[expected] += 1
        answered = answer(trace, "ticket-uniqueness")
        assert answered is (Answer.BROKEN if expected else Answer.HOLDS), seed
    assert min(seen[True], seen[False]) > CASES / 40, seen
