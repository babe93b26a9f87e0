"""A member on a stage: events that wait, transitional views, full applications, leaving."""

from __future__ import annotations

from typing import Any

from ordercast.protocol.transis.packets import Hello, Status
from ordercast.testing.stage import Stage
from ordercast.types import Event, View


def staged(names: str = "n1 n2 n3", **options: Any) -> Stage:
    return Stage.of("synchrony", names, **options)


def heard(stage: Stage, name: str) -> list[str]:
    """What an application hears: messages, and the members of views, transitional ones with ~."""
    found = []
    for who, what in stage.log:
        if who != stage.node(name):
            continue
        if isinstance(what, Event):
            found.append(what.payloads[0].decode())
        elif isinstance(what, View):
            names = " ".join(str(member) for member in what.members)
            found.append(f"~{names}" if what.transitional else names)
    return found


def begin_change(stage: Stage) -> None:
    """n3 restarts, and n1 hears of it first: it proposes a view without the old n3."""
    stage.crash("n3")
    stage.start("n3")
    stage.fire("n3")
    for message in stage.underway("n3", "n1"):
        if isinstance(message.packet, Hello):
            stage.deliver(message)
            return


def test_one_window_of_events_waits_for_the_next_view() -> None:
    stage = staged(window=3)
    begin_change(stage)
    for number in range(3):
        assert stage.accepts("n1")
        stage.submit("n1", [b"%d" % number])
    assert not stage.accepts("n1")
    assert stage.machine("n1").blocked_by("g") == "view"  # type: ignore[attr-defined]
    stage.settle(ticks=4)
    assert stage.accepts("n1")
    after = heard(stage, "n2")
    assert after[:3] == ["n1 n2 n3", "~n1 n2", "n1 n2"]
    assert [each for each in after if each.isdigit()] == ["0", "1", "2"]


def test_a_safe_event_that_a_dead_member_may_lack_comes_after_a_transitional_view() -> None:
    stage = staged()
    stage.cut("n1", "n3")
    stage.cut("n2", "n3")
    stage.submit("n1", [b"certain"], service="safe")
    stage.settle(ticks=2)
    assert heard(stage, "n2") == ["n1 n2 n3"]  # n3 has not acknowledged it
    stage.crash("n3")
    stage.settle(ticks=24)
    for name in ("n1", "n2"):
        assert heard(stage, name) == ["n1 n2 n3", "~n1 n2", "certain", "n1 n2"]


def test_an_agreed_event_comes_before_it_if_anybody_knows_its_place() -> None:
    """n2 knows that n3 sends nothing lower, and tells n1 so when both are ready."""
    stage = staged()
    stage.submit("n1", [b"placed"])
    for message in stage.underway("n1"):
        stage.deliver(message)
    for message in stage.underway("n3", "n2"):
        stage.deliver(message)
    stage.cut("n1", "n3")
    stage.crash("n3")
    stage.settle(ticks=24)
    for name in ("n1", "n2"):
        assert heard(stage, name) == ["n1 n2 n3", "placed", "~n1 n2", "n1 n2"]


def test_a_full_application_acknowledges_nothing_but_takes_part_in_a_change() -> None:
    stage = staged(window=2)
    stage.throttle("n2", True)
    for text in (b"a", b"b"):
        stage.submit("n1", [text], service="causal")
    stage.settle(ticks=2)
    assert heard(stage, "n3")[1:] == ["a", "b"]
    assert heard(stage, "n2")[1:] == []
    assert not stage.accepts("n1")  # its window is full
    begin_change(stage)
    stage.settle(ticks=1)
    assert heard(stage, "n2")[:5] == ["n1 n2 n3", "a", "b", "~n1 n2", "n1 n2"]


def test_a_member_that_left_with_a_full_application_comes_back_with_an_empty_one() -> None:
    stage = staged("n1 n2")
    stage.throttle("n2", True)
    stage.rejoin("n2")  # it leaves, and joins again
    stage.settle(ticks=12)
    assert heard(stage, "n1")[-1] == "n1 n2"
    stage.submit("n1", [b"hello"])
    stage.settle(ticks=2)
    assert heard(stage, "n2")[-1] == "hello"


def test_a_member_that_leaves_while_a_cut_binds_it_reports_what_it_loses() -> None:
    stage = staged()
    begin_change(stage)
    stage.submit("n1", [b"too late"])
    for message in stage.underway("n1", "n2"):
        stage.deliver(message)  # n2 agrees
    for message in stage.underway("n2", "n1")[:1]:
        stage.deliver(message)  # n1 is ready, and n2's word to that is on its way
    stage.leave("n1")
    assert [note.columns["cause"] for note in stage.notes(stage.node("n1"), "lose")] == [
        "discarded"
    ]
    stage.settle(ticks=6)
    assert "too late" not in heard(stage, "n2")


def test_an_agreed_event_waits_only_for_members_with_smaller_names() -> None:
    """What the others send later is at least as high, and of that height it comes after it."""
    stage = staged()
    stage.submit("n1", [b"first"])
    assert heard(stage, "n1") == ["n1 n2 n3", "first"]
    for message in stage.underway("n1", "n3"):
        stage.deliver(message)
    assert heard(stage, "n3") == ["n1 n2 n3", "first"]
    stage.settle(ticks=2)
    stage.submit("n3", [b"last"])
    for message in stage.underway("n3"):
        stage.deliver(message)
    assert heard(stage, "n1")[-1] == "first"  # n2 may have sent something as high
    for message in stage.underway("n2", "n1"):
        stage.deliver(message)
    assert heard(stage, "n1")[-1] == "last"
    assert heard(stage, "n2")[-1] == "first"  # and so may n1
    stage.settle(ticks=2)
    assert heard(stage, "n2")[-1] == heard(stage, "n3")[-1] == "last"


# --- acknowledgements --------------------------------------------------------------------------


def acknowledgements(stage: Stage, name: str) -> int:
    """Of one member to another that are under way."""
    to = "n1" if name != "n1" else "n2"
    return sum(isinstance(message.packet, Status) for message in stage.underway(name, to))


def test_four_lone_messages_are_acknowledged_at_once_and_later_ones_after_a_while() -> None:
    stage = staged()
    stage.settle(ticks=1)
    told = []
    for number in range(6):
        stage.submit("n1", [b"%d" % number])
        for message in stage.underway("n1", "n2"):
            stage.deliver(message)
        told.append(acknowledgements(stage, "n2"))
    assert told == [1, 2, 3, 4, 4, 4]
    stage.fire("n2")
    assert acknowledgements(stage, "n2") == 5  # one for both


def test_events_that_cross_are_not_acknowledged_at_once() -> None:
    """Each says that nothing lower comes, so the order of both is known."""
    stage = staged("n1 n2")
    stage.submit("n1", [b"one"])
    stage.submit("n2", [b"two"])
    for message in [*stage.underway("n1", "n2"), *stage.underway("n2", "n1")]:
        stage.deliver(message)
    assert heard(stage, "n1") == heard(stage, "n2") == ["n1 n2", "one", "two"]
    assert not stage.underway()
    stage.settle(ticks=2)  # but soon, because members retain events until all have them
    assert stage.machine("n1").stable_up_to("g") == stage.machine("n2").stable_up_to("g") == 1
