"""The newest incarnations that a node has heard of: how many, and which of them give way."""

from __future__ import annotations

from random import Random
from typing import cast

from tests.net.nodes import Cluster, live, until

from ordercast.net.connection import Connection
from ordercast.net.contacts import Contacts
from ordercast.net.incidents import Incidents
from ordercast.net.known_numbers import MOST_BY_ONE, MOST_NUMBERS, KnownNumbers
from ordercast.types import NodeId


class Heard:
    def __init__(self) -> None:
        self.contacts = Contacts(NodeId("me"), Incidents(), Random(1))
        self.numbers = KnownNumbers(self.contacts)

    def by(self, teller: str, *names: str, incarnation: int = 5) -> None:
        for name in names:
            self.numbers.hear(NodeId(name, incarnation), teller)

    def connect(self, name: str) -> None:
        contact = self.contacts.greeted(name)
        assert contact is not None
        contact.connection = cast("Connection", object())

    def fill(self) -> list[str]:
        """As many names as are remembered, each told by itself."""
        names = [f"x{number}" for number in range(MOST_NUMBERS)]
        for name in names:
            self.by(name, name)
        return names

    @property
    def forgotten(self) -> int:
        return self.contacts.incidents.counters["numbers_forgotten"]


def test_beyond_the_limit_the_name_goes_of_which_nothing_was_heard_for_longest() -> None:
    heard = Heard()
    names = heard.fill()
    heard.by("n2", names[0])
    heard.by("n2", "new", "newer")
    known = heard.numbers.known
    assert len(known) == MOST_NUMBERS
    assert {*names} - {*known} == {"x1", "x2"}
    assert known["newer"] == NodeId("newer", 5)
    assert heard.forgotten == 2


def test_a_name_that_is_connected_does_not_give_way() -> None:
    heard = Heard()
    for name in heard.fill()[: MOST_NUMBERS - 1]:
        heard.connect(name)
    heard.by("n2", "new", "newer")
    assert {"x0", "newer"} <= {*heard.numbers.known}
    assert heard.numbers.known.keys().isdisjoint({"new", f"x{MOST_NUMBERS - 1}"})
    heard.connect("newer")
    heard.by("n3", "newest")
    assert "newest" not in heard.numbers.known, "all that are known are connected"
    assert heard.forgotten == 3


def test_one_node_can_fill_only_its_share() -> None:
    heard = Heard()
    heard.by("n3", "real")
    heard.by("n4", "n4")
    ghosts = [f"ghost{number}" for number in range(10 * MOST_BY_ONE)]
    heard.by("liar", "liar", "real", "n4", *ghosts)
    heard.by("liar", *ghosts)
    assert {"real", "n4"} < {*heard.numbers.known}
    assert len(heard.numbers.known) == MOST_BY_ONE + 2, "beside the others, which it told too late"
    heard.by("n5", "n6")
    assert "n6" in heard.numbers.known


def test_a_name_that_has_greeted_is_in_nobody_elses_share() -> None:
    heard = Heard()
    heard.by("liar", "n2")
    heard.by("n2", "n2", incarnation=6)
    heard.by("liar", "n2", *(f"ghost{number}" for number in range(2 * MOST_BY_ONE)))
    assert heard.numbers.known["n2"] == NodeId("n2", 6)


def test_a_name_that_is_forgotten_leaves_room_in_its_share() -> None:
    heard = Heard()
    names = [f"x{number}" for number in range(MOST_BY_ONE)]
    heard.by("n2", *names)
    assert heard.numbers.forget("x3")
    assert not heard.numbers.forget("x3")
    heard.by("n2", "more")
    assert len(heard.numbers.known) == MOST_BY_ONE
    assert heard.forgotten == 0


def test_numbers_that_are_only_announced_are_bounded_too() -> None:
    heard = Heard()
    for number in range(MOST_NUMBERS + 2):
        heard.numbers.take(NodeId(f"x{number}", 7))
        heard.numbers.take(NodeId(f"x{number}", 8))
    assert len(heard.numbers.taken) == MOST_NUMBERS
    assert heard.numbers.report("x1") is None
    assert heard.numbers.report("x2") == NodeId("x2", 8)
    assert heard.forgotten == 2


@live
async def test_a_name_is_known_although_a_few_false_greetings_came_before(cluster: Cluster) -> None:
    """So a node of that name which loses its folder takes a higher number."""
    n1 = await cluster.open("n1")
    for teller in range(12):
        liar = await cluster.dial(n1)
        ghosts = {f"g{teller}.{number}": 1 for number in range(600)}
        await liar.connect(f"liar{teller}", newest=ghosts)
        await liar.close()
    honest = await cluster.dial(n1)
    await honest.connect("n3", newest={"n2": 41})
    await until(lambda: "n3" in n1.mesh.contacts)
    asking = await cluster.dial(n1)
    assert (await asking.connect("n2", incarnation=42)).newest["n2"] == 41
    assert n1.status()["counters"]["numbers_forgotten"] > 0
