"""Never two owners of one ticket, whatever goes wrong; and if most guardians live, somebody has it.

What the guard set rests on is taken away in turn, to see that these tests would notice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.protocol.tickets.storms import Storm, storm

from ordercast.check.verdict import Answer
from ordercast.protocol.tickets import guardian, leased, register, steward
from ordercast.protocol.tickets.packets import Held

SEEDS = range(150)


def assert_sound(found: Storm, seed: int) -> None:
    assert found.error is None, (seed, found.error)
    assert found.verdict.answer is Answer.HOLDS, (seed, found.verdict.why)


def test_with_disks_that_keep_there_is_one_owner_and_work_goes_on() -> None:
    acquired = lost = 0
    for seed in SEEDS[:30]:
        found = storm(seed, fickle=0.0)
        assert_sound(found, seed)
        assert found.goes_on, f"seed {seed}: everybody wants a ticket and nobody has one"
        acquired += found.count("acquired")
        lost += found.count("disconnected")
    assert acquired > 120 and lost > 5, "or this shows nothing"  # noqa: PT018


def test_with_disks_that_are_lost_there_is_one_owner() -> None:
    """Then work may end for good: nobody can tell lost guardians from ones that are far away."""
    for seed in SEEDS[80:100]:
        assert_sound(storm(seed, disks=("kept", "lost")), seed)


def test_clocks_may_differ_by_as_much_as_was_stated() -> None:
    for seed in SEEDS[:12]:
        assert_sound(storm(seed, drift=0.3), seed)


# --- what it rests on ----------------------------------------------------------------------------


def wait_as_long_as_a_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leased.Rules, "wait", property(lambda rules: rules.lease))


def serve_at_once_after_an_install(patch: pytest.MonkeyPatch) -> None:
    begin = guardian.Guardian._begin

    def impatient(self: Any, step: Any, next_: Any) -> None:
        begin(self, step, next_)
        for entry in self.register.entries:
            entry.touched = -(10**12)

    patch.setattr(guardian.Guardian, "_begin", impatient)


def ignore_votes(patch: pytest.MonkeyPatch) -> None:
    take = steward.Steward.on_sealed

    def forgetful(self: Any, step: Any, sealed: Any) -> None:
        take(self, step, msgspec.structs.replace(sealed, vote=None))

    patch.setattr(steward.Steward, "on_sealed", forgetful)


def merge_by_the_highest_epoch(patch: pytest.MonkeyPatch) -> None:
    def hasty(found: list[tuple[Held, bool]]) -> Held:
        top = max((held for held, _ in found), key=lambda held: held.epoch)
        return msgspec.structs.replace(top, mode="held" if top.owner else "free")

    patch.setattr(register, "_merged", hasty)


def grant_although_sealed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(guardian.Guardian, "sealed", property(lambda self: False))


@pytest.mark.parametrize(
    ("mutant", "seeds", "drift"),
    [
        (wait_as_long_as_a_lease, (19, 82, 103), 0.3),
        (serve_at_once_after_an_install, (0, 2, 5), 0.05),
        (ignore_votes, (103, 119, 133), 0.05),
        (merge_by_the_highest_epoch, (81, 118), 0.05),
        (grant_although_sealed, (68,), 0.05),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_without_it_there_are_two_owners(
    mutant: Callable[[pytest.MonkeyPatch], None],
    seeds: tuple[int, ...],
    drift: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutant(monkeypatch)
    broken = [storm(seed, drift=drift).verdict for seed in seeds]
    assert any(verdict.answer is Answer.BROKEN for verdict in broken)
