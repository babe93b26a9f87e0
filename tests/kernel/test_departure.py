"""How a member leaves, and how it comes back: the rules that live groups and simulations share."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ordercast.errors import UsageError
from ordercast.kernel.departure import LEASES_TO_RETIRE, Departure
from ordercast.kernel.family import Family, Plan
from ordercast.kernel.machine import Machine
from ordercast.kernel.machines import Machines
from ordercast.levels import choose
from ordercast.protocol.families import FAMILIES
from ordercast.types import NodeId

N1, N2 = NodeId("n1"), NodeId("n2")


def departure(word: str, **options: Any) -> Departure:
    family, own = choose(word, options, FAMILIES)
    return Departure(family, Plan("g", ("n1", "n2"), own))


def machine_of(leaving: Departure, me: NodeId = N2) -> Machine:
    (machine,) = leaving.family.build(me, (leaving.plan,), Random(1), ())
    return machine


class Retirer:
    """As much of a machine as is asked whether its member is needed."""

    def __init__(self, machine: Machine, may_go: bool, heirs: bool) -> None:
        self._machine, self._may_go, self._heirs = machine, may_go, heirs

    def may_go(self, group: str) -> bool:
        return self._may_go

    def has_heirs(self, group: str, now: int) -> bool:
        return self._heirs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)


def retirer(leaving: Departure, *, may_go: bool = False, heirs: bool = False) -> Any:
    return Retirer(machine_of(leaving), may_go, heirs)


def test_what_is_not_sent_or_not_with_all_others_is_underway() -> None:
    leaving = departure("fifo")
    assert leaving.is_underway(True, 0, 0)
    assert leaving.is_underway(False, 7, 6)
    assert not leaving.is_underway(False, 7, 7)


def test_a_family_that_does_not_know_who_has_what_waits_for_its_own_queue_alone() -> None:
    leaving = departure("causal")
    assert leaving.is_underway(True, 0, 0)
    assert not leaving.is_underway(False, 7, 0)


def test_only_where_it_takes_a_permit_there_is_something_to_hand_over() -> None:
    for calm in (departure("fifo"), departure("causal", ownership="fixed")):
        assert calm.lease is None
        assert not calm.forgets_records(machine_of(calm), "n2")
    moving = departure("causal", lease="300ms")
    assert moving.lease == 300_000_000
    assert moving.longest == LEASES_TO_RETIRE * moving.lease


def test_a_member_that_retires_is_needed_until_it_has_handed_over_or_nobody_takes_it() -> None:
    leaving = departure("causal")
    assert leaving.lease is not None
    soon, late = leaving.lease - 1, leaving.lease
    assert leaving.is_needed(retirer(leaving), soon, 0)
    assert not leaving.is_needed(retirer(leaving), late, 0)
    assert leaving.is_needed(retirer(leaving, heirs=True), late, 0)
    assert not leaving.is_needed(retirer(leaving, may_go=True, heirs=True), soon, 0)


def test_a_member_forgets_its_records_if_nobody_needs_it_and_it_is_no_bootstrap_node() -> None:
    leaving = departure("causal")
    permit = leaving.family.permit
    assert permit is not None
    assert permit.bootstrap_node(leaving.plan) == "n1"
    assert leaving.forgets_records(retirer(leaving, may_go=True), "n2")
    assert not leaving.forgets_records(retirer(leaving, may_go=True), "n1")
    assert not leaving.forgets_records(retirer(leaving), "n2")


# --- joining again ------------------------------------------------------------------------------


def machines() -> Machines:
    return Machines(N1, lambda group: (), lambda family, plan: Random(1))


def family_and_plan(word: str) -> tuple[Family, Plan]:
    found = departure(word)
    return found.family, found.plan


def test_a_member_continues_with_the_machine_that_it_had() -> None:
    family, plan = family_and_plan("causal")
    known = machines()
    first = known.take(family, plan)
    known.over(plan, first, sound=True)
    assert known.take(family, plan) is first


def test_a_family_that_cannot_rejoin_wants_a_new_incarnation() -> None:
    family, plan = family_and_plan("fifo")
    known = machines()
    known.over(plan, known.take(family, plan), sound=True)
    with pytest.raises(UsageError, match="only a new incarnation can join it again"):
        known.take(family, plan)


def test_a_machine_that_broke_serves_nobody_again() -> None:
    for word in ("causal", "total"):
        family, plan = family_and_plan(word)
        known = machines()
        known.over(plan, known.take(family, plan), sound=False)
        with pytest.raises(UsageError, match="only a new incarnation"):
            known.take(family, plan)


def test_groups_that_share_a_machine_get_the_one_that_is_there() -> None:
    family, plan = family_and_plan("total")
    known = machines()
    shared = known.take(family, plan)
    assert known.take(family, plan._replace(group="h")) is shared
    built_before = machine_of(departure("total"))
    other = machines()
    other.share(family, built_before)
    assert other.take(family, plan) is built_before
