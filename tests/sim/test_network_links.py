"""Links: reliable and FIFO between two incarnations, whatever lies in between; and cuts."""

from __future__ import annotations

import pytest
from tests.sim.probes import (
    DATAGRAM,
    LINK,
    MILLISECOND,
    SECOND,
    Stage,
    cut,
    fault,
    first,
    say,
    say_many,
)

from ordercast.scenario.schema import NetworkSettings
from ordercast.sim import network as network_room
from ordercast.types import NodeId
from ordercast.units import Duration

WILD = NetworkSettings(jitter=1.0, loss=0.3, duplicate=0.5, reorder=0.5)
SEEDS = range(8)


def talk(stage: Stage, count: int, every: int = 10 * MILLISECOND) -> list[str]:
    """n1 writes to the first incarnation of n2, again and again. Returns what it wrote."""
    for number in range(count):
        stage.at((number + 1) * every, "n1", say(first("n2"), str(number), LINK))
    return [str(number) for number in range(count)]


# --- reliable, in order, once ---------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_links_lose_duplicate_and_reorder_nothing(seed: int) -> None:
    stage = Stage(2, network=WILD, seed=seed)
    said = talk(stage, 500, MILLISECOND)
    stage.run()
    assert stage.texts("n2") == said


@pytest.mark.parametrize("seed", SEEDS)
def test_links_keep_order_across_cuts_losses_pauses_and_slow_paths(seed: int) -> None:
    faults = [
        cut(500 * MILLISECOND, "n1 | n2", 700 * MILLISECOND),
        cut(SECOND, "n1 | n2", 900 * MILLISECOND, "one-way"),
        cut(1500 * MILLISECOND, "n2 | n1", 300 * MILLISECOND, "one-way"),
        fault("loss", 2 * SECOND, "n1", SECOND, rate=0.9),
        fault("pause", 2500 * MILLISECOND, "n2", 200 * MILLISECOND),
        fault("slow", 3 * SECOND, "n2", SECOND, factor=30.0),
        cut(3500 * MILLISECOND, "n1 | n2"),
    ]
    stage = Stage(2, network=WILD, seed=seed, faults=faults)
    said = talk(stage, 450)
    stage.run()
    assert stage.texts("n2") == said


def test_loss_on_a_link_shows_as_delay() -> None:
    def last_arrival(loss: float) -> int:
        stage = Stage(2, network=NetworkSettings(jitter=0.0, loss=loss))
        stage.at(SECOND, "n1", *say_many(first("n2"), 50)).run()
        assert len(stage.heard) == 50
        return stage.heard[-1].at - SECOND

    assert last_arrival(0.0) < 3 * MILLISECOND
    assert last_arrival(0.3) > network_room.RETRANSMIT
    # What is lost again costs again, but no loss keeps a link from going on.
    assert 4 * network_room.RETRANSMIT < last_arrival(0.9) < 9 * network_room.RETRANSMIT


def test_the_two_directions_of_a_pair_are_two_links() -> None:
    stage = Stage(2, network=WILD)
    stage.at(SECOND, "n1", *say_many(first("n2"), 20, prefix="there "))
    stage.at(SECOND, "n2", *say_many(first("n1"), 20, prefix="back "))
    stage.run()
    assert stage.texts("n2") == [f"there {number}" for number in range(20)]
    assert stage.texts("n1") == [f"back {number}" for number in range(20)]


def test_a_bare_name_on_a_link_is_a_bug_of_the_sender() -> None:
    stage = Stage(2).at(SECOND, "n1", say("n2", "to whom?", LINK))
    outcome = stage.world.run()
    assert outcome.error is not None
    assert "a link joins two incarnations" in outcome.error
    assert stage.heard == []


# --- cuts ------------------------------------------------------------------------------------


def test_a_link_holds_its_packets_during_a_cut_and_continues_after_it() -> None:
    stage = Stage(2, faults=[cut(SECOND, "n1 | n2", SECOND)])
    stage.at(SECOND - MILLISECOND, "n1", say(first("n2"), "underway", LINK))
    stage.at(SECOND + MILLISECOND, "n1", say(first("n2"), "during", LINK))
    stage.at(2 * SECOND + 100 * MILLISECOND, "n1", say(first("n2"), "after", LINK))
    stage.run()
    assert stage.texts("n2") == ["underway", "during", "after"]
    underway, during, after = (heard.at for heard in stage.heard)
    assert 2 * SECOND < underway == during < after


def test_a_cut_drops_datagrams() -> None:
    stage = Stage(2, faults=[cut(SECOND, "n1 | n2", SECOND)])
    for at in (SECOND // 2, SECOND + SECOND // 2, 2 * SECOND + SECOND // 2):
        stage.at(at, "n1", say("n2", str(at), DATAGRAM))
    stage.run()
    assert stage.texts("n2") == [str(SECOND // 2), str(2 * SECOND + SECOND // 2)]


@pytest.mark.parametrize("channel", [LINK, DATAGRAM])
def test_a_one_way_cut_cuts_one_way(channel: object) -> None:
    stage = Stage(2, faults=[cut(SECOND, "n1 | n2", kind="one-way")])
    stage.at(2 * SECOND, "n1", say(first("n2"), "there", channel))  # type: ignore[arg-type]
    stage.at(2 * SECOND, "n2", say(first("n1"), "back", channel))  # type: ignore[arg-type]
    stage.run()
    early = [heard.text for heard in stage.heard if heard.at < 10 * SECOND]
    assert early == ["back"]


def ask_everybody(stage: Stage, count: int) -> set[tuple[str, str]]:
    """Who reaches whom by datagram at 2 s."""
    names = [f"n{number}" for number in range(1, count + 1)]
    for name in names:
        others = tuple(other for other in names if other != name)
        stage.at(2 * SECOND, name, say(others, "hello", DATAGRAM))
    stage.run()
    return {(heard.sender.name, heard.by.name) for heard in stage.heard}


def pairs(*joined: str) -> set[tuple[str, str]]:
    return {
        (one, two)
        for group in joined
        for one in group.split()
        for two in group.split()
        if one != two
    }


def test_a_process_on_no_side_of_a_partition_reaches_all() -> None:
    reached = ask_everybody(Stage(5, faults=[cut(SECOND, "n1 n2 | n3 n4")]), 5)
    assert reached == pairs("n1 n2 n5", "n3 n4 n5")


def test_a_partition_may_have_more_than_two_sides() -> None:
    reached = ask_everybody(Stage(4, faults=[cut(SECOND, "n1 | n2 | n3 n4")]), 4)
    assert reached == pairs("n3 n4")


def test_a_partition_by_nodes_cuts_them_off_from_the_rest() -> None:
    reached = ask_everybody(Stage(4, faults=[fault("partition", SECOND, "n1 n2")]), 4)
    assert reached == pairs("n1 n2", "n3 n4")


def test_a_one_way_cut_by_nodes_is_from_them_to_the_rest() -> None:
    reached = ask_everybody(Stage(3, faults=[fault("one-way", SECOND, "n1")]), 3)
    assert reached == pairs("n1 n2 n3") - {("n1", "n2"), ("n1", "n3")}


def test_a_path_is_open_again_only_when_the_last_cut_on_it_is_healed() -> None:
    faults = [cut(SECOND, "n1 | n2", 2 * SECOND), cut(2 * SECOND, "n1 | n2", 2 * SECOND)]
    stage = Stage(2, faults=faults)
    stage.at(SECOND + MILLISECOND, "n1", say(first("n2"), "held", LINK))
    stage.at(3 * SECOND + MILLISECOND, "n1", say("n2", "dropped", DATAGRAM))
    stage.run()
    assert [(heard.text, heard.at // SECOND) for heard in stage.heard] == [("held", 4)]


def test_a_link_that_is_cut_again_before_it_continued_holds_its_packets() -> None:
    """The second cut comes while the connection is being made again."""
    faults = [cut(SECOND, "n1 | n2", SECOND), cut(2 * SECOND + MILLISECOND, "n1 | n2", SECOND)]
    stage = Stage(2, faults=faults)
    stage.at(SECOND + MILLISECOND, "n1", say(first("n2"), "first", LINK))
    stage.at(2 * SECOND + MILLISECOND // 2, "n1", say(first("n2"), "second", LINK))
    stage.run()
    assert stage.texts("n2") == ["first", "second"]
    assert all(heard.at > 3 * SECOND for heard in stage.heard)


def test_a_protocol_that_queues_without_a_limit_during_a_cut_fails_its_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(network_room, "HELD_LIMIT", 100)
    for count, trips in ((100, False), (101, True)):
        stage = Stage(2, faults=[cut(SECOND, "n1 | n2")])
        stage.at(2 * SECOND, "n1", *say_many(first("n2"), count))
        error = stage.world.run().error
        assert (error is not None and "n1 queues without end for n2" in error) is trips


# --- the end of an incarnation ---------------------------------------------------------------


def crash_while_talking(seed: int, *faults: object) -> Stage:
    """n1 writes 100 words over 10 ms on a path of 2 ms and more, and dies in the middle."""
    stage = Stage(
        2,
        seed=seed,
        network=NetworkSettings(jitter=0.5),
        faults=[fault("crash", SECOND + 6 * MILLISECOND, "n1"), *faults],  # type: ignore[list-item]
    )
    for number in range(100):
        at = SECOND + number * MILLISECOND // 10
        stage.at(at, "n1", say(first("n2"), str(number), LINK))
    stage.run()
    return stage


def is_prefix(texts: list[str]) -> bool:
    return texts == [str(number) for number in range(len(texts))]


def test_when_the_sender_dies_a_prefix_of_its_packets_arrives() -> None:
    lengths = []
    for seed in range(40):
        texts = crash_while_talking(seed).texts("n2")
        assert is_prefix(texts)
        lengths.append(len(texts))
    assert len(set(lengths)) > 10, "where it ends is drawn"
    assert max(lengths) <= 60, "the dead say nothing"
    assert max(lengths) > 50, "and sometimes all of it arrives"


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        (-1, 1000),
        (1, 1000),
        (5, 1000),
        (7, 1000),
        (3, 5.5),  # mended before the crash, but the link has not gone on yet
        (5, 6.5),
        (6.1, 6.4),  # over before all that is underway has arrived
        (6.5, 7),
    ],
)
def test_when_the_sender_dies_during_a_cut_a_prefix_of_its_packets_arrives(
    begins: float, ends: float
) -> None:
    """Whether it was held by the cut or still on its way when the sender died, at 6 ms."""
    at, lasts = SECOND + int(begins * MILLISECOND), int((ends - begins) * MILLISECOND)
    for seed in range(40):
        texts = crash_while_talking(seed, cut(at, "n1 | n2", lasts)).texts("n2")
        assert is_prefix(texts)


def test_a_new_incarnation_of_the_receiver_gets_no_packet_of_the_old_one() -> None:
    stage = Stage(2, faults=[fault("restart", SECOND, "n2", MILLISECOND)])
    stage.at(SECOND - MILLISECOND, "n1", say(first("n2"), "underway", LINK))
    stage.at(SECOND + 2 * MILLISECOND, "n1", say(first("n2"), "to the dead", LINK))
    stage.at(2 * SECOND, "n1", say(NodeId("n2", 1), "to the living", LINK))
    stage.run()
    assert [(heard.by, heard.text) for heard in stage.heard] == [(NodeId("n2", 1), "to the living")]


def test_a_new_incarnation_of_the_receiver_gets_no_packet_that_a_cut_held() -> None:
    faults = [cut(SECOND, "n1 | n2", 2 * SECOND), fault("restart", 2 * SECOND, "n2")]
    stage = Stage(2, faults=faults)
    stage.at(SECOND + MILLISECOND, "n1", say(first("n2"), "held", LINK)).run()
    assert stage.heard == []


def test_a_new_incarnation_of_the_sender_has_links_of_its_own() -> None:
    """Its first words do not wait for what its old incarnation had underway on a slow path."""
    faults = [
        fault("slow", SECOND, "n1", 500 * MILLISECOND, factor=2000.0),
        fault("restart", SECOND + 100 * MILLISECOND, "n1", 500 * MILLISECOND),
    ]
    stage = Stage(2, faults=faults, network=NetworkSettings(jitter=0.0))
    stage.at(SECOND + MILLISECOND, "n1", say(first("n2"), "old", LINK))
    stage.at(2 * SECOND, "n1", say(first("n2"), "new", LINK))
    stage.run()
    new = next(heard for heard in stage.heard if heard.text == "new")
    assert new.sender == NodeId("n1", 1)
    assert new.at == 2 * SECOND + Duration(2 * MILLISECOND)
