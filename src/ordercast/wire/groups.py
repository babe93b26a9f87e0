"""What connected nodes say about their groups: after the greeting, and when it has changed.

So members find each other by the name of a group, and members with different terms notice.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ordercast.wire.greeting import Count, Name, Place

MOST_NOTES = 64
MOST_MEMBERS = 8
"""Members that a note names: enough to find the others, who name more."""
MOST_TERMS = 64

Term = Annotated[str, Meta(max_length=100)]
Places = Annotated[dict[Name, Place], Meta(max_length=MOST_MEMBERS)]


class GroupNote(msgspec.Struct, frozen=True, array_like=True):
    """One group of the sender's. New fields may only be added at the end."""

    name: Name
    terms: Annotated[dict[Term, Term], Meta(max_length=MOST_TERMS)]
    is_in: bool  # False: the sender waits to be in it
    age: Count  # milliseconds since the sender joined it
    founding: Annotated[str, Meta(max_length=150)] = ""  # which one founded its group (`View`)
    members: Places = {}  # others that are in it, and where, as far as the sender knows


class Groups(msgspec.Struct, frozen=True, array_like=True):
    """What is new."""

    notes: Annotated[list[GroupNote], Meta(max_length=MOST_NOTES)] = []
    left: Annotated[list[Name], Meta(max_length=MOST_NOTES)] = []  # groups
    # Of a group that the receiver waits for: others that joined it, and where.
    elsewhere: Annotated[dict[Name, Places], Meta(max_length=MOST_NOTES)] = {}
