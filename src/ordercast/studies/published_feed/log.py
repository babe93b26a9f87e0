"""The log of a node: all messages that it has, in the order in which it took them.

Adly, Kumar: HPP, a hierarchical propagation protocol (1994), section 3. The paper removes a message
when all correspondents have acknowledged it and a time T has passed since. Here T never passes:
footnote 2 of the paper wants it long enough, and no break on the page comes from a short one.
"""

from __future__ import annotations

from typing import NamedTuple

from ordercast.studies.published_feed.packets import UP, Message


class LoggedMessage(NamedTuple):
    message: Message
    previous: str  # m_prev, as this node tells its correspondents


class MessageLog:
    __slots__ = ("_places", "entries")

    def __init__(self) -> None:
        self.entries: list[LoggedMessage] = []
        self._places: dict[tuple[str, int], int] = {}  # by key: the last place

    def add(self, message: Message, previous: str) -> None:
        self._places[message.key] = len(self.entries)
        self.entries.append(LoggedMessage(message, previous))

    def find(self, origin: str, sequence: int) -> LoggedMessage:
        return self.entries[self._places[origin, sequence]]

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self.entries)

    # What Figure 4 asks for: the last so many of the first `of` entries.

    def last_down(self, count: int, of: int) -> list[Message]:
        """Sent downwards: each entry has increased W by one, wherever it came from."""
        return [entry.message for entry in self.entries[:of]][-count:]

    def last_up(self, count: int, of: int) -> list[Message]:
        """Sent upwards: own ones and those of children."""
        return [entry.message for entry in self.entries[:of] if entry.previous != UP][-count:]

    def last_made(self, origin: str, count: int, of: int) -> list[Message]:
        found = [entry.message for entry in self.entries[:of] if entry.message.origin == origin]
        return found[-count:]
