"""Contacts: how we know them, which of them are forgotten, and who is wanted. The time is given."""

from __future__ import annotations

from random import Random

from ordercast.net import contacts as limits
from ordercast.net.contact import Contact
from ordercast.net.contacts import Contacts
from ordercast.net.incidents import Incidents
from ordercast.net.links import Links
from ordercast.net.protection import is_loopback
from ordercast.types import NodeId
from ordercast.units import SECOND


class Clock:
    def __init__(self) -> None:
        self.now = 1000 * SECOND

    def __call__(self) -> int:
        return self.now

    def wait(self, duration: int) -> None:
        self.now += duration


class Scene:
    def __init__(self) -> None:
        self.clock = Clock()
        self.contacts = Contacts(NodeId("me"), Incidents(), Random(1), self.clock)
        self.dialled: list[str] = []
        self.contacts.dial = lambda contact: self.dialled.append(contact.name)
        self.links = Links(self.contacts, self.clock)

    def wait(self, duration: int) -> None:
        """Looking after the contacts once a second or so."""
        for _ in range(60):
            self.clock.wait(duration // 60)
            self.links.tend()


def places(prefix: str, count: int) -> dict[str, str]:
    return {f"{prefix}{number}": "10.0.0.1:7" for number in range(count)}


def test_a_configured_contact_is_never_forgotten_and_never_counted() -> None:
    scene = Scene()
    for name, place in places("peer", limits.MOST_CONTACTS + 10).items():
        scene.contacts.know(name, place)
    assert scene.contacts.greeted("visitor") is not None
    scene.wait(2 * limits.FORGOTTEN)
    assert "visitor" not in scene.contacts
    assert len(scene.contacts) == limits.MOST_CONTACTS + 10
    assert scene.links.wants(scene.contacts["peer0"])


def test_nobody_is_remembered_who_bears_our_name() -> None:
    scene = Scene()
    assert scene.contacts.know("me", "10.0.0.1:7") is None
    scene.contacts.told({"me": "10.0.0.1:7"}, by="n1")
    assert not scene.contacts


def test_names_that_no_node_can_have_are_not_remembered() -> None:
    scene = Scene()
    odd = ("n2\n", "n 2", "..", "a/b", "\x1b[2J", "ｎ１", "x" * 101)
    scene.contacts.told(dict.fromkeys((*odd, "n2"), "10.0.0.1:7"), "n9")
    for name in odd:
        assert scene.contacts.heard(NodeId(name), ("10.0.0.1", 7)) is None
    assert list(scene.contacts) == ["n2"]


def test_a_told_contact_is_dialled_when_it_is_used() -> None:
    scene = Scene()
    scene.contacts.told({"n2": "10.0.0.2:7"}, by="n1")
    assert not scene.dialled
    assert not scene.links.wants(scene.contacts["n2"])
    contact = scene.contacts.use("n2")
    assert scene.dialled == ["n2"]
    assert contact is not None and scene.links.wants(contact)
    scene.wait(limits.USED + 60 * SECOND)
    assert not scene.links.wants(contact)


def test_a_told_contact_that_never_answers_is_forgotten() -> None:
    scene = Scene()
    scene.contacts.told({"n2": "10.0.0.2:7"}, by="n1")
    contact = scene.contacts.use("n2")
    assert contact is not None
    for _ in range(limits.MOST_FAILURES):
        assert scene.links.wants(contact)
        scene.contacts.failed(contact)
    assert not scene.links.wants(contact)
    assert "n2" not in scene.contacts
    assert scene.contacts.use("n2", by_link=False) is None
    assert scene.contacts.is_one_missing(), "so seeds are asked again"
    scene.wait(limits.USED + 60 * SECOND)
    assert not scene.contacts.is_one_missing()


def test_a_contact_that_greeted_us_is_dialled_for_as_long_as_it_is_used() -> None:
    scene = Scene()
    contact = scene.contacts.greeted("n2", "10.0.0.2:7")
    assert contact is not None and not scene.links.wants(contact)
    for _ in range(100):
        scene.contacts.use("n2")
        scene.contacts.failed(contact)
        scene.wait(30 * SECOND)
        assert scene.links.wants(contact)
    scene.wait(limits.USED + limits.FORGOTTEN)
    assert not scene.contacts


def test_a_greeted_contact_whose_link_counted_frames_is_remembered() -> None:
    """The other end counts on what we have received."""
    scene = Scene()
    for name in ("n2", "n3"):
        contact = scene.contacts.greeted(name)
        assert contact is not None
        contact.meet(NodeId(name), b"")
    link = scene.contacts["n2"].link
    assert link is not None
    link.received = 1
    scene.wait(2 * limits.FORGOTTEN)
    assert list(scene.contacts) == ["n2"]


def test_one_teller_fills_its_own_quota_only() -> None:
    scene = Scene()
    scene.contacts.told({"n2": "10.0.0.2:7"}, by="n1")
    for name in places("used", 10):
        scene.contacts.told({name: "10.0.0.3:7"}, by="liar")
        scene.contacts.use(name)
    for batch in range(40):
        scene.clock.wait(SECOND)
        scene.contacts.told(places(f"ghost{batch}-", 250), by="liar")
    told = [each for each in scene.contacts.values() if each.told_by == "liar"]
    assert len(told) == limits.MOST_TOLD_BY_ONE
    assert {*places("used", 10)} < {each.name for each in told}, "what is in use stays"
    assert "ghost39-31" in scene.contacts, "the oldest give way"
    assert "n2" in scene.contacts


def test_many_tellers_together_have_a_limit_too() -> None:
    scene = Scene()
    for teller in range(100):
        scene.clock.wait(SECOND)
        scene.contacts.told(places(f"t{teller}-", 20), by=f"liar{teller}")
    assert limits.MOST_TOLD // 2 < len(scene.contacts) <= limits.MOST_TOLD
    assert "t99-19" in scene.contacts


def test_a_told_contact_that_something_waits_for_is_not_forgotten() -> None:
    """A link loses nothing that was put on it."""
    scene = Scene()
    scene.contacts.told({"n2": "10.0.0.2:7"}, by="n1")
    contact = scene.contacts.use("n2")
    assert contact is not None
    link = contact.link_to(NodeId("n2"))
    assert link is not None
    link.add(b"for n2")
    for _ in range(10):
        scene.contacts.failed(contact)
    scene.wait(2 * limits.FORGOTTEN)
    assert scene.contacts["n2"] is contact


def test_what_is_sent_by_link_waits_for_a_node_that_nobody_has_placed() -> None:
    """A machine knows members from others: one that it knows before we do must get everything."""
    scene = Scene()
    assert scene.contacts.use("n2", by_link=False) is None
    contact = scene.contacts.use("n2")
    assert contact is not None
    link = contact.link_to(NodeId("n2"))
    assert link is not None
    link.add(b"for n2")
    assert scene.contacts.is_one_missing()
    scene.links.tend()
    assert not scene.dialled
    assert contact.meet(NodeId("n2"), b"birth") is link
    scene.contacts.told({"n2": "10.0.0.2:7"}, by="n1")
    assert scene.contacts.use("me") is None
    assert scene.contacts.use("no name") is None


def test_a_node_that_nobody_has_placed_is_dialled_when_somebody_does() -> None:
    scene = Scene()
    contact = scene.contacts.use("n2")
    assert contact is not None
    assert contact.link_to(NodeId("n2")) is not None
    scene.contacts.told({"n2": "10.0.0.2:7"}, by="n1")
    scene.links.tend()
    assert scene.dialled == ["n2"]


def test_nodes_that_exist_in_words_only_are_bounded_and_forgotten() -> None:
    scene = Scene()
    for number in range(2 * limits.MOST_TOLD):
        contact = scene.contacts.use(f"ghost{number}")
        if contact is not None:
            assert contact.link_to(NodeId(contact.name)) is not None
    assert len(scene.contacts) == limits.MOST_TOLD
    scene.wait(2 * limits.FORGOTTEN)
    assert not scene.contacts


def test_the_longest_unused_gives_way_when_there_are_too_many() -> None:
    scene = Scene()
    for name in places("n", limits.MOST_CONTACTS):
        scene.clock.wait(1)
        scene.contacts.greeted(name)
    scene.contacts.use("n0")
    assert scene.contacts.greeted("one-more") is not None
    assert len(scene.contacts) == limits.MOST_CONTACTS
    assert "n0" in scene.contacts and "n1" not in scene.contacts


def test_only_contacts_that_exist_are_told_to_others() -> None:
    """Rumours die out: what we were only told we do not tell, nor who is long gone."""
    scene = Scene()
    scene.contacts.know("configured", "10.0.0.1:7")
    scene.contacts.told({"rumour": "10.0.0.2:7"}, by="configured")
    met = scene.contacts.greeted("met", "10.0.0.3:7")
    assert met is not None
    met.meet(NodeId("met"), b"")
    assert scene.contacts.places() == {"configured": "10.0.0.1:7", "met": "10.0.0.3:7"}
    scene.clock.wait(limits.RECENT + 1)
    assert scene.contacts.places() == {"configured": "10.0.0.1:7"}


def test_a_told_contact_that_greets_us_is_known_by_its_greeting() -> None:
    scene = Scene()
    scene.contacts.told({"n2": "10.0.0.2:7"}, by="n1")
    contact = scene.contacts.greeted("n2", "10.0.0.9:7")
    assert isinstance(contact, Contact)
    assert (contact.source, contact.place) == ("greeted", "10.0.0.9:7")


HERE = ("10.0.0.2", 7)


def test_a_node_is_known_by_its_datagrams() -> None:
    scene = Scene()
    contact = scene.contacts.heard(NodeId("n2", 3), HERE)
    assert contact is not None
    assert (contact.source, contact.place, contact.udp) == ("told", "10.0.0.2:7", HERE)
    assert contact.node is None, "it has not greeted us"
    assert scene.contacts.places_of(["n2", "n3"]) == {"n2": "10.0.0.2:7"}
    contact.is_heard = True  # by whoever took the datagram
    assert scene.contacts.has_company()
    assert scene.contacts.heard(NodeId("me"), HERE) is None
    scene.wait(limits.PRESENT + 60 * SECOND)
    assert not scene.contacts.has_company()


def test_datagrams_of_an_older_incarnation_do_not_count() -> None:
    scene = Scene()
    contact = scene.contacts.greeted("n2")
    assert contact is not None
    contact.meet(NodeId("n2", 3), b"")
    assert scene.contacts.heard(NodeId("n2", 2), HERE) is None
    assert scene.contacts.heard(NodeId("n2", 5), HERE) is contact
    assert scene.contacts.heard(NodeId("n2", 4), HERE) is None
    contact.break_with(NodeId("n2", 6))
    assert scene.contacts.heard(NodeId("n2", 6), HERE) is None, "its link is broken"


def test_a_datagram_from_where_we_may_not_send_makes_nobody_known() -> None:
    scene = Scene()
    scene.contacts.believes = is_loopback
    assert scene.contacts.heard(NodeId("n2"), ("10.0.0.2", 7)) is None
    assert "n2" not in scene.contacts
    assert scene.contacts.heard(NodeId("n2"), ("127.0.0.1", 7)) is not None
    assert scene.contacts.heard(NodeId("n2", 1), ("10.0.0.2", 7)) is None, "nor a newer incarnation"
    assert scene.contacts["n2"].place == "127.0.0.1:7"
    assert scene.contacts["n2"].udp == ("127.0.0.1", 7)
    assert scene.contacts.incidents.counters["refused_addresses"] == 2


def test_a_greeting_names_some_of_many_others_each_time() -> None:
    scene = Scene()
    for name, place in places("n", 1000).items():
        scene.contacts.know(name, place)
    some, others = scene.contacts.places(), scene.contacts.places()
    assert len(some) == len(others) == limits.MOST_PLACES
    assert some.keys() != others.keys()


def test_a_told_place_of_a_node_that_nobody_heard_may_change() -> None:
    scene = Scene()
    scene.contacts.told({"n2": "10.0.0.2:7"}, by="n1")
    scene.contacts.told({"n2": "10.0.0.3:7"}, by="n3")
    assert scene.contacts["n2"].place == "10.0.0.3:7"
    scene.contacts.heard(NodeId("n2"), HERE)
    scene.contacts.told({"n2": "10.0.0.9:7"}, by="n3")
    assert scene.contacts["n2"].place == "10.0.0.2:7"


def test_a_flood_of_names_by_datagram_is_bounded() -> None:
    scene = Scene()
    for number in range(5000):
        scene.contacts.heard(NodeId(f"n{number}"), HERE)
    assert len(scene.contacts) <= limits.MOST_TOLD
