"""The ring of tickets: distances, coordinated ranges, and a process's view of the owners.

Tickets are 0 to n - 1 on a ring. The ticket that succeeds i is i - 1 (mod n), as in the paper; so
"after" means downwards. A process with ticket i whose successor has ticket j coordinates i, i - 1,
and so on, down to j + 1 (the paper's S_p). Alone it is its own successor and coordinates them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ordercast.studies.published_ring.packets import RingSeat


def distance(tickets: int, start: int, end: int) -> int:
    """Steps downwards from one ticket to another, 1 to n: all the way round to itself."""
    return (start - end) % tickets or tickets


def coordinated(tickets: int, own: int, successor: int) -> tuple[int, ...]:
    """S_p, one's own ticket first."""
    return tuple((own - step) % tickets for step in range(distance(tickets, own, successor)))


def between(tickets: int, after: int, before: int) -> tuple[int, ...]:
    """The tickets strictly between two: E_pq."""
    return coordinated(tickets, after, before)[1:]


class Cview:
    """Who owns which ticket, as far as this process has heard. Each owns one at most."""

    def __init__(self, tickets: int, seats: Iterable[RingSeat] = ()) -> None:
        self.tickets = tickets
        self._owners: dict[int, str] = {}
        for seat in seats:
            self.put(seat.ticket, seat.name)

    def put(self, ticket: int, name: str) -> None:
        """A process owns one ticket at most: this replaces what was known of it."""
        for other in [place for place, owner in self._owners.items() if owner == name]:
            del self._owners[other]
        self._owners[ticket] = name

    def remove(self, tickets: Iterable[int]) -> list[RingSeat]:
        """Removes the owners of these tickets. Returns them."""
        found = [ticket for ticket in tickets if ticket in self._owners]
        return [RingSeat(ticket, self._owners.pop(ticket)) for ticket in found]

    def owner(self, ticket: int) -> str | None:
        return self._owners.get(ticket)

    def seats(self) -> tuple[RingSeat, ...]:
        return tuple(RingSeat(ticket, self._owners[ticket]) for ticket in sorted(self._owners))

    def free(self) -> list[int]:
        return [ticket for ticket in range(self.tickets) if ticket not in self._owners]

    def successors(self, ticket: int) -> Iterator[RingSeat]:
        """The owners after a ticket, the closest first; the owner of the ticket itself last."""
        for step in range(1, self.tickets + 1):
            place = (ticket - step) % self.tickets
            if place in self._owners:
                yield RingSeat(place, self._owners[place])

    def coordinator(self, ticket: int) -> RingSeat | None:
        """The coordinator of a ticket: its owner, or else the closest owner before it."""
        for step in range(self.tickets):
            place = (ticket + step) % self.tickets
            if place in self._owners:
                return RingSeat(place, self._owners[place])
        return None


def closest(tickets: int, own: int, known: Iterable[RingSeat], count: int) -> tuple[RingSeat, ...]:
    """The closest predecessors of a ticket among these, the closest first."""
    ordered = sorted(known, key=lambda seat: (distance(tickets, seat.ticket, own), seat.name))
    return tuple(ordered[:count])
