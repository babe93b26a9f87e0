"""What a post of a board says: JSON with an author and a text, of a limited size.

A feed takes any bytes, and any node of it may post. So what others posted is read with suspicion:
all that is not such a JSON is *foreign*, and shown as such. Pure.
"""

from __future__ import annotations

import re

import msgspec

from ordercast.errors import UsageError

LONGEST_AUTHOR = 60
LONGEST_TEXT = 4000
LARGEST_POST = 32 << 10
"""Bytes: a text of the longest kind fits, in every script and with every escape."""
SHOWN_FOREIGN = 80
"""Characters of a foreign post that are shown."""
# Line breaks and tabs stand in texts; all else that moves a cursor does not.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Content(msgspec.Struct, frozen=True):
    """What somebody says. Nobody vouches for the author: any node can post by any name."""

    author: str
    text: str

    def objection(self) -> str:
        """What is wrong with it, as a sentence; or nothing."""
        author, text = self.author, self.text
        for part, said in (("author", author), ("text", text)):
            if not said.strip():
                return f"a post has an author and a text, and the {part} is empty"
        if len(author) > LONGEST_AUTHOR or "\n" in author or "\t" in author:
            return f"the author is one line of {LONGEST_AUTHOR} characters at most"
        if len(text) > LONGEST_TEXT:
            return f"the text has {len(text)} characters, {LONGEST_TEXT} at most"
        if _CONTROLS.search(author) or _CONTROLS.search(text):
            return "a post has no control characters but line breaks and tabs"
        return ""


def encoded(content: Content) -> bytes:
    """As it is posted. UsageError: what is wrong with it."""
    if objection := content.objection():
        raise UsageError(objection)
    return msgspec.json.encode(content)


def read_content(data: bytes) -> Content | None:
    """What a post says; None: it is foreign."""
    if len(data) > LARGEST_POST:
        return None
    try:
        content = msgspec.json.decode(data, type=Content)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # also: no UTF-8, a deep nest
        return None
    return None if content.objection() else content


def foreign_text(data: bytes) -> str:
    """How it begins, if it is text at all. What does not print is shown by its number."""
    start = data[: 4 * SHOWN_FOREIGN].decode(errors="replace")
    shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in start)
    return shown if len(shown) <= SHOWN_FOREIGN else shown[:SHOWN_FOREIGN] + "…"
