"""Every schedule of a few members that contend for tickets, with the real parts, up to bounds.

Never two valid owners at one moment, one replica set for each number, one owner for each ticket and
epoch: in every state that was met. Each setting says how many there are, and whether those are all
within its bounds. Then what the replica set rests on is taken away, to see that the search notices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from tests.protocol.tickets import mutants
from tests.protocol.tickets.contenders import contest, never_two, one_owner_an_epoch

from ordercast.sim.explore import Bounds, Report, explore

MOST = 40_000
"""States of a search that is not to the end."""
MOST_IN_A_LONG_ONE = 1_000_000


class Contest(NamedTuple):
    members: int
    options: Mapping[str, Any]
    bounds: Mapping[str, int]
    complete: bool  # the search comes to its end
    after: Sequence[str] = ()

    def search(self, most: int = 3 * MOST, **more: int) -> Report:
        bounds = Bounds(submissions=0, max_states=most, **{**self.bounds, **more})
        where = contest(self.members, **self.options)
        return explore(where, bounds, one_owner_an_epoch, after=self.after, invariant=never_two)


TWO_IN_ONE = Contest(
    2,
    {
        "first": ("n1",),
        "guards": 1,
        "wants": {"n1": (0,), "n2": (0,)},
        "ticks": {"n1": 4, "n2": 4},
    },
    {"timers": 3},
    True,
)
DRIFTING = Contest(
    3,
    {
        "first": ("n1",),
        "guards": 1,
        "drift": 0.25,
        "rates": {"n1": 0.25, "n2": -0.25},
        "wants": {"n2": (0,)},
        "later": ("n3",),
        "ticks": {"n3": 8},
    },
    {"timers": 2},
    True,
)
REPLICA_SET_GROWS = Contest(
    3,
    {
        "first": ("n1",),
        "wants": {"n2": (0,)},
        "later": ("n3",),
        "sees": {"n1": ("n1", "n2", "n3")},
        "ticks": {"n1": 4, "n3": 4},
    },
    {"timers": 2},
    False,
)
OWNER_RESTARTS = Contest(
    3,
    {
        "first": ("n1",),
        "guards": 1,
        "wants": {"n2": (0, 0), "n3": (0,)},
        "waits": {"n1": 5},
    },
    {"timers": 2, "crashes": 1, "restarts": 1, "duplicates": 1},
    False,
)
ANYBODY_RESTARTS = Contest(
    3,
    {"wants": {"n1": (0,), "n2": (0,)}},
    {"crashes": 1, "restarts": 1},
    True,
)
TWO_TICKETS = Contest(
    4,
    {
        "first": ("n1",),
        "guards": 1,
        "tickets": 2,
        "wants": {"n2": (0,), "n3": (0,), "n4": (1,)},
        "gives_back": ("n2", "n4"),
        "ticks": {"n3": 5},
    },
    {"timers": 3},
    False,
)
TWO_LEADERS = Contest(
    3,
    {
        "wants": {"n3": (0,)},
        "sees": {"n1": ("n1", "n2"), "n2": ("n2", "n3")},
        "ticks": {"n1": 4, "n2": 4},
    },
    {"timers": 2},
    False,
)
TWO_LEADERS_AND_A_NEWCOMER = Contest(
    4,
    {
        "wants": {"n4": (0,)},
        "sees": {"n1": ("n1", "n2", "n4"), "n2": ("n1", "n2")},
        "ticks": {"n1": 4, "n2": 4},
    },
    {"timers": 2},
    False,
)
A_LEADER_CRASHES = Contest(
    3,
    {
        "wants": {"n3": (0,)},
        "sees": {"n1": ("n1", "n2"), "n2": ("n1", "n2")},
        "ticks": {"n1": 4, "n2": 4},
    },
    {"timers": 2, "crashes": 1, "restarts": 1},
    False,
)
# Two have asked for one ticket in one epoch; the second has it, and gives it back.
ONE_OF_TWO_GIVES_BACK = Contest(
    3,
    {
        "wants": {"n1": (0,), "n2": (0,)},
        "gives_back": ("n2",),
        "sees": {"n1": ("n1", "n2")},
        "ticks": {"n1": 4},
    },
    {"timers": 3},
    False,
    ("n2 → n3: tickets.claim", "n3 → n2: tickets.grant", "n2 timer give back"),
)
# One replica set is as good as decided, and another reconfiguration leader knows nothing of it.
ONE_LEADER_HAS_A_MAJORITY = Contest(
    3,
    {"sees": {"n1": ("n1", "n2"), "n2": ("n2", "n3")}, "ticks": {"n1": 4, "n2": 4}},
    {"timers": 1},
    True,
    (
        "n1 timer tick",
        "n1 → n2: tickets.seal",
        "n2 → n1: tickets.sealed",
        "n1 → n2: tickets.propose",
        "n2 → n1: tickets.voted",
    ),
)
CONTESTS = {
    name.lower(): value for name, value in list(globals().items()) if isinstance(value, Contest)
}


@pytest.mark.parametrize("name", CONTESTS)
def test_no_schedule_gives_a_ticket_two_owners(name: str) -> None:
    which = CONTESTS[name]
    report = which.search(2 * MOST if which.complete else MOST)
    print(name, report)
    assert report.broken is None, str(report)
    assert report.complete == which.complete
    assert report.states > 5000, "or this shows little"


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, which in CONTESTS.items() if not which.complete])
def test_many_more_schedules_give_no_ticket_two_owners(name: str) -> None:
    report = CONTESTS[name].search(MOST_IN_A_LONG_ONE)
    print(name, report)
    assert report.broken is None, str(report)


# --- what it rests on ----------------------------------------------------------------------------

Mutant = Callable[[pytest.MonkeyPatch], None]
CAUGHT: dict[Mutant, tuple[Contest, str]] = {
    mutants.wait_as_long_as_a_lease: (DRIFTING, "both may use ticket 0"),
    mutants.serve_at_once_after_an_install: (
        REPLICA_SET_GROWS._replace(after=("n2 → n1: tickets.claim", "n1 → n2: tickets.grant")),
        "both may use ticket 0",
    ),
    mutants.ignore_votes: (ONE_LEADER_HAS_A_MAJORITY, "Configuration(number=2"),
    mutants.merge_without_raising_ties: (ONE_OF_TWO_GIVES_BACK, "acquired twice in epoch 1"),
    mutants.stay_the_same_owner_after_a_restart: (
        OWNER_RESTARTS._replace(bounds={"crashes": 1, "restarts": 1}),
        "acquired twice in epoch 1",
    ),
    mutants.number_claims_from_one_in_every_incarnation: (
        OWNER_RESTARTS,
        "acquired twice in epoch 1",
    ),
}


@pytest.mark.parametrize("mutant", CAUGHT, ids=lambda mutant: mutant.__name__)
def test_without_any_one_safeguard_a_schedule_gives_a_ticket_two_owners(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    which, why = CAUGHT[mutant]
    mutant(monkeypatch)
    report = which.search()
    assert report.broken is not None, str(report)
    assert why in str(report.broken)
