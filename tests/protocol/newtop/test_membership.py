"""Agreement on failures, and where the cut of the next view is (sections 3 and 5)."""

from __future__ import annotations

from itertools import permutations

import pytest
from tests.protocol.newtop.table import (
    carry,
    die,
    die_heard_by,
    fall_silent,
    group,
    heard,
    leave,
    member,
    messages,
    node,
    staged,
    suspect,
    views,
    wait,
)

from ordercast.protocol.newtop.packets import Refute, Suspect
from ordercast.testing.actor import Posted
from ordercast.testing.stage import Stage


def losses(stage: Stage, name: str) -> list[str]:
    return [str(note.columns["origin"]) for note in stage.notes(node(name), "lose")]


def test_a_member_that_crashed_is_excluded_by_all() -> None:
    """VC2, and the same view at all remaining members (VC1)."""
    stage = staged({"g": "n1 n2 n3"})
    stage.crash("n3")
    wait(stage)
    assert views(stage, "n1") == views(stage, "n2") == ["g{n1 n2 n3}", "g{n1 n2}"]
    stage.submit("n1", [b"a"])
    stage.settle(ticks=2)
    assert messages(stage, "n1") == messages(stage, "n2") == ["a"]


def test_who_keeps_an_event_from_being_stable_is_known() -> None:
    """n2 has not delivered it either, because it waits for n3: only n3 is named."""
    stage = staged({"g": "n1 n2 n3"})
    assert member(stage, "n1").behind("g") == ()
    fall_silent(stage, "n3")
    stage.submit("n1", [b"a"])
    stage.settle(ticks=2)
    assert member(stage, "n1").behind("g") == (node("n3"),)
    wait(stage)
    assert member(stage, "n1").behind("g") == ()


def test_views_of_one_exclusion_have_one_identity() -> None:
    stage = staged({"g": "n1 n2 n3"})
    stage.crash("n3")
    wait(stage)
    one, other = (group(stage, name).views.current() for name in ("n1", "n2"))
    assert one == other
    assert one.id != group(staged({"g": "n1 n2"}), "n1").views.current().id


def test_events_that_one_survivor_has_of_a_crashed_sender_reach_all() -> None:
    """Atomicity (MD3): a suspicion without it is refuted, and the refutation carries it."""
    stage = staged({"g": "n1 n2 n3"})
    die_heard_by(stage, "n3", "n2", b"a")
    wait(stage)
    assert heard(stage, "n1") == heard(stage, "n2") == ["g{n1 n2 n3}", "a", "g{n1 n2}"]


def test_a_suspicion_of_a_live_member_is_refuted() -> None:
    """n1 does not hear n3, n2 does: n2 relays all that n3 says, for as long as it takes."""
    stage = staged({"g": "n1 n2 n3"}, prompt_after="20ms", silence_limit="100ms")
    stage.cut("n3", "n1", one_way=True)
    for at in range(3):
        stage.submit("n3", [f"m{at}".encode()])
        wait(stage)
    assert views(stage, "n1") == ["g{n1 n2 n3}"]
    assert messages(stage, "n1") == messages(stage, "n3") == ["m0", "m1", "m2"]
    assert stage.notes(node("n1"), "refute")


def test_suspicions_of_oneself_are_answered_at_once() -> None:
    stage = staged({"g": "n1 n2 n3"}, silence_limit="10s", suspicion_limit="20s")
    group(stage, "n1")  # n1 is idle for a long time to come
    stage.inject(node("n2"), "n1", Suspect("g", "", 1, 0, 0, 0, node("n1"), 0))
    assert [type(parcel.packet).__name__ for parcel in stage.underway("n1", "n3")] == ["Null"]


def test_orphans_are_discarded_with_their_causes() -> None:
    """Example 1. n4 delivered what only it had of n3, said more, and died before it could tell."""
    stage = staged({"g": "n1 n2 n3 n4"})
    for name in ("n1", "n2", "n3"):
        stage.submit(name, [name.encode()])
    for name in ("n1", "n2", "n3"):
        carry(stage, name, "n4")
    assert messages(stage, "n4") == ["n1", "n2", "n3"]
    stage.submit("n4", [b"orphan"])
    carry(stage, "n4", "n1")
    carry(stage, "n4", "n2")
    die(stage, "n3")
    die(stage, "n4")
    wait(stage)
    assert heard(stage, "n1") == heard(stage, "n2")
    assert messages(stage, "n1") == ["n1", "n2"]
    assert views(stage, "n1") == ["g{n1 n2 n3 n4}", "g{n1 n2}"], "they are gone together"
    assert losses(stage, "n1") == losses(stage, "n2") == ["n4"]


def test_a_chain_through_other_groups_waits_for_the_exclusion() -> None:
    """Example 2, figure 2. m1 of n1 never gets to n4; what follows from it, by way of n2 and n3,
    is delivered only in a view of g without n1 (MD5')."""
    stage = staged({"g": "n1 n2 n4", "h": "n2 n3", "k": "n3 n4"})
    stage.submit("n4", [b"before"], "g")
    stage.submit("n1", [b"m1"], "g")
    for source, target in (("n4", "n1"), ("n4", "n2"), ("n1", "n2")):
        carry(stage, source, target)
    stage.cut("n1", "n4")
    stage.cut("n2", "n4")
    stage.settle(ticks=3)
    assert messages(stage, "n2") == ["m1", "before"]
    stage.submit("n2", [b"m2"], "h")
    stage.settle(ticks=3)
    assert messages(stage, "n3") == ["m2"]
    stage.submit("n3", [b"m3"], "k")
    stage.settle(ticks=3)
    assert messages(stage, "n4") == [], "n1 and n2 may have sent what m3 follows"
    wait(stage)
    assert heard(stage, "n4")[2:] == ["g{n4}", "before", "m3"]


def test_sides_of_a_partition_continue_with_disjoint_views() -> None:
    """Example 3, with a cut that stays."""
    stage = staged({"g": "n1 n2 n3 n4 n5"})
    stage.crash("n5")
    for one in ("n1", "n2"):
        for other in ("n3", "n4"):
            stage.cut(one, other)
    wait(stage)
    for name in ("n1", "n3"):
        stage.submit(name, [name.encode()])
    stage.settle(ticks=3)
    assert views(stage, "n1")[-1] == views(stage, "n2")[-1] == "g{n1 n2}"
    assert views(stage, "n3")[-1] == views(stage, "n4")[-1] == "g{n3 n4}"
    assert messages(stage, "n2") == ["n1"]
    assert messages(stage, "n4") == ["n3"]


def test_views_that_intersect_separate_when_the_network_cut_heals() -> None:
    """Example 3 of the paper: n3 and n4 exclude n5 alone, n1 and n2 exclude all three."""
    stage = staged({"g": "n1 n2 n3 n4 n5"})
    stage.crash("n5")
    for one in ("n1", "n2"):
        for other in ("n3", "n4"):
            stage.cut(other, one, one_way=True)
    wait(stage)
    assert views(stage, "n1")[-1] == "g{n1 n2}"
    stage.mend("n1", "n3")
    stage.mend("n1", "n4")
    stage.mend("n2", "n3")
    stage.mend("n2", "n4")
    wait(stage)
    assert views(stage, "n2")[-1] == "g{n1 n2}"
    assert views(stage, "n3")[-1] == views(stage, "n4")[-1] == "g{n3 n4}"


def test_a_member_that_others_excluded_excludes_them() -> None:
    """(vii): it learns it from their confirmation, as soon as that gets through."""
    stage = staged({"g": "n1 n2 n3"})
    for other in ("n1", "n2"):
        stage.cut("n3", other, one_way=True)
    wait(stage)
    assert views(stage, "n1")[-1] == "g{n1 n2}"
    assert views(stage, "n3")[-1] == "g{n3}"
    causes = {note.columns["cause"] for note in stage.notes(node("n3"), "suspect")}
    assert causes == {"excluded-us"}


def test_a_lower_cut_absorbs_pending_ones() -> None:
    """n1 adopts that n3 left without a packet of n4, and n2 and n4 die: one view, one cut.

    The paper's rule forgets n3 too early, and waits for ever for a dead member's suspicion.
    """
    stage = staged({"g": "n1 n2 n3 n4"})
    leave(stage, "n3")
    for name in ("n1", "n2", "n4"):
        carry(stage, "n3", name)
    carry(stage, "n1", "n2")
    carry(stage, "n4", "n2")
    carry(stage, "n2", "n1")
    assert list(group(stage, "n1").views.agreed) == [node("n3")]
    assert views(stage, "n1") == ["g{n1 n2 n3 n4}"], "n4 holds the installation up"
    die(stage, "n2")
    die(stage, "n4")
    wait(stage)
    assert views(stage, "n1") == ["g{n1 n2 n3 n4}", "g{n1}"]
    stage.submit("n1", [b"a"])
    assert messages(stage, "n1") == ["a"]


@pytest.mark.parametrize("order", list(permutations(("n1", "n2", "n4"))))
def test_a_member_that_leaves_is_excluded_after_its_last_event(order: tuple[str, ...]) -> None:
    stage = staged({"g": "n1 n2 n3 n4"})
    stage.submit("n3", [b"last"])
    leave(stage, "n3")
    for name in order:
        carry(stage, "n3", name)
        for other in order:
            if other != name:
                carry(stage, name, other)
    stage.settle(ticks=4)
    for name in order:
        assert heard(stage, name) == ["g{n1 n2 n3 n4}", "last", "g{n1 n2 n4}"]
    assert messages(stage, "n3") == [], "who has left hears no more"


def test_events_that_waited_for_a_group_are_delivered_when_it_is_left() -> None:
    stage = staged({"g": "n1 n2", "h": "n2 n3"})
    stage.cut("n2", "n3")
    stage.submit("n1", [b"a"], "g")
    stage.settle(ticks=3)
    assert messages(stage, "n2") == []
    leave(stage, "n2", "h")
    assert messages(stage, "n2") == ["a"]
    assert not member(stage, "n2").accepts("h", stage.now)


def test_a_member_that_was_stalled_suspects_nobody() -> None:
    """The clock of a stalled member hardly advances, however long it is stalled."""
    stage = staged({"g": "n1 n2"})
    stage.settle(ticks=3)
    stage.now += 60_000_000_000
    stage.fire("n1")
    assert not stage.notes(node("n1"), "suspect")
    stage.settle(ticks=3)
    assert views(stage, "n1") == ["g{n1 n2}"]


def test_a_new_incarnation_is_in_no_view() -> None:
    """Views only shrink: an excluded member returns only with a new formation."""
    stage = staged({"g": "n1 n2 n3"})
    stage.crash("n3")
    stage.start("n3")
    wait(stage)
    assert not stage.accepts("n3")
    assert views(stage, "n1")[-1] == "g{n1 n2}"
    assert member(stage, "n3").counters("g") == {"present": 0, "forming": 0}


def test_a_silent_group_is_left_with_one_member_each() -> None:
    """Two members that do not hear each other cannot know which of them is cut off."""
    stage = staged({"g": "n1 n2"})
    fall_silent(stage, "n2")
    wait(stage)
    assert views(stage, "n1")[-1] == "g{n1}"
    assert views(stage, "n2")[-1] == "g{n2}"


def test_a_refutation_carries_only_missing_packets() -> None:
    stage = staged({"g": "n1 n2 n3"})
    for at in range(3):
        stage.submit("n3", [f"m{at}".encode()])
        if at == 0:
            carry(stage, "n3", "n1")
    carry(stage, "n3", "n2")
    die(stage, "n3")
    wait(stage)
    refutes = [
        what.packet
        for who, what in stage.log
        if who == node("n2") and isinstance(what, Posted) and isinstance(what.packet, Refute)
    ]
    assert [one.number for one in refutes[0].messages if hasattr(one, "number")] == [2, 3]
    assert messages(stage, "n1") == messages(stage, "n2") == ["m0", "m1", "m2"]


def test_suspicions_in_a_cycle_do_not_wait_for_ever() -> None:
    """n1 suspects n2, n2 suspects n3, n3 suspects n1: each withholds the packet that would help."""
    stage = staged({"g": "n1 n2 n3"})
    stage.settle(ticks=2)
    for one, other in (("n1", "n2"), ("n2", "n3"), ("n3", "n1")):
        suspect(stage, one, other)
    wait(stage, 400)
    stage.submit("n1", [b"a"])
    wait(stage)
    assert messages(stage, "n1") == ["a"]
    assert not group(stage, "n1").agreement.suspicions.suspected
