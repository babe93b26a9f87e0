"""The sequencer crashes after each of its actions, and any part of what it sent may arrive."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import product

import pytest
from tests.protocol.newtop.table import heard, messages, views, wait

from ordercast.kernel.family import Plan
from ordercast.protocol.newtop import SEQUENCED
from ordercast.protocol.newtop.options import SequencedOptions
from ordercast.testing.stage import Stage

OPTIONS = SequencedOptions(
    prompt_after="50ms", silence_limit="100ms", suspicion_limit="200ms", window=3
)


def staged(names: str) -> Stage:
    stage = Stage(SEQUENCED, [Plan("g", tuple(names.split()), OPTIONS)])
    stage.start()
    return stage


def play(stage: Stage, script: list[tuple[str, str]], moves: int) -> Iterator[str]:
    """One action after the other; yields its member. Submissions come in between."""
    script = list(script)
    for move in range(moves):
        if script and move % 3 == 0:
            who, text = script.pop(0)
            assert stage.submit(who, [text.encode()])
        elif stage.underway():
            parcel = stage.underway()[0]
            who = parcel.target
            stage.deliver(parcel)
        else:
            due = {name: actor.timers() for name, actor in stage.actors.items() if actor.alive}
            who = min(due, key=lambda name: min(at for at, _, _, _ in due[name]))
            stage.fire(who)
        yield who


def crash_after_each_action(stage: Stage, script: list[tuple[str, str]], moves: int) -> list[Stage]:
    """What came of it: for every action of n1, and all that it had under way up to some point."""
    ends = []
    for who in play(stage, script, moves):
        if who != "n1":
            continue
        others = [name for name, actor in stage.actors.items() if actor.alive and name != "n1"]
        lengths = [len(stage.underway("n1", name)) for name in others]
        for arrive in product(*(sorted({0, 1, length // 2, length}) for length in lengths)):
            if all(few <= length for few, length in zip(arrive, lengths, strict=True)):
                ends.append(_crashed(deepcopy(stage), dict(zip(others, arrive, strict=True))))
    return ends


def _crashed(stage: Stage, arrive: dict[str, int]) -> Stage:
    stage.crash("n1")
    for name, count in arrive.items():
        parcels = stage.underway("n1", name)
        for parcel in parcels[:count]:
            stage.deliver(parcel)
        if parcels[count:]:
            stage.drop(parcels[count])
    wait(stage, 60)
    return stage


def in_views(stage: Stage, name: str) -> dict[str, list[str]]:
    """What was delivered in each view."""
    found: dict[str, list[str]] = {}
    for one in heard(stage, name):
        if "{" in one:
            found[one] = latest = []
        else:
            latest.append(one)
    return found


def assert_sound(stage: Stage, submitted: set[str]) -> None:
    """n2 and n3 heard the same, all that they sent included; n1 nothing else in its views."""
    assert heard(stage, "n2") == heard(stage, "n3")
    assert views(stage, "n2")[-1] == "g{n2 n3}"
    delivered = messages(stage, "n2")
    assert len(delivered) == len(set(delivered))
    assert submitted <= set(delivered)
    ours, theirs = in_views(stage, "n1"), in_views(stage, "n2")
    for view in ours.keys() & theirs.keys():
        shorter = min(ours[view], theirs[view], key=len)
        longer = max(ours[view], theirs[view], key=len)
        assert longer[: len(shorter)] == shorter, "one sequencer orders all of a view"


def accepted(stage: Stage) -> set[str]:
    """What n2 and n3 have submitted, by the streams that they cast."""
    return {
        one.decode()
        for who, what in stage.log
        if who.name in ("n2", "n3") and type(getattr(what, "packet", None)).__name__ == "Data"
        for one in what.packet.payloads  # type: ignore[union-attr]
        if what.packet.origin == who  # type: ignore[union-attr]
    }


SCRIPT = [("n2", "a"), ("n3", "b"), ("n1", "c"), ("n3", "d"), ("n2", "e"), ("n1", "f")]


def test_a_sequencer_may_crash_anywhere_while_it_orders_events() -> None:
    ends = crash_after_each_action(staged("n1 n2 n3"), SCRIPT, 60)
    assert len(ends) > 70
    for stage in ends:
        assert_sound(stage, accepted(stage))
    assert len({tuple(heard(stage, "n2")) for stage in ends}) > 7, "it mattered when it crashed"


@pytest.mark.parametrize("gone", ["n4", "n2"])
def test_a_sequencer_may_crash_anywhere_while_another_member_is_excluded(gone: str) -> None:
    """n4 fails first, or the next sequencer."""
    stage = staged("n1 n2 n3 n4")
    names = {"n4": {}, "n2": {"n2": "n4"}}[gone]
    stage.crash(gone)
    script = [(names.get(who, who), text) for who, text in SCRIPT[:3]]
    ends = crash_after_each_action(stage, script, 140)
    assert len(ends) > 70
    left = [name for name in ("n2", "n3", "n4") if name != gone]
    for end in ends:
        assert heard(end, left[0]) == heard(end, left[1])
        assert views(end, left[0])[-1] == f"g{{{left[0]} {left[1]}}}"
    assert len({tuple(views(end, left[0])) for end in ends}) == 2, "with n1, and before it"
