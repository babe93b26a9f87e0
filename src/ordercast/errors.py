"""Everything that ordercast raises on purpose, by the party at fault."""

import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import PurePath


class OrdercastError(Exception):
    """The root of our errors: catching it catches nothing that is a bug of ours."""


class UsageError(OrdercastError):
    """The user gave us something wrong: one sentence says what, where, and what is expected.

    The command line turns it into that sentence and exit code 2.
    """


class TraceError(UsageError):
    """A trace folder or file that cannot be read: empty, truncated, foreign, of another version."""


class PeerError(OrdercastError):
    """A peer sent what its protocol forbids. It costs the peer its connection, nothing more."""


class UnreachableError(OrdercastError):
    """A peer or a service does not answer. The command line turns it into exit code 4."""


class DiskError(OrdercastError):
    """The durable store cannot persist a record. A member that cannot keep its word stops."""


class NameTaken(OrdercastError):
    """Another node has this node's name, and had it first. This one stops; the other goes on."""


class Abandoned(OrdercastError):
    """This incarnation is over, because others have met a newer one of its name. Its groups end,
    and the node goes on as an incarnation that is newer still: join them again."""


def failure_line(failure: Exception) -> str:
    """A bug of ours in one line: what was raised, where, and what it said."""
    frame = traceback.extract_tb(failure.__traceback__)[-1]
    place = f"{PurePath(frame.filename).name}:{frame.lineno}"
    return f"{type(failure).__name__} at {place}: {' '.join(str(failure).split())}"


def unknown_word(what: str, word: str, known: Iterable[str]) -> str:
    """The sentence for an unknown word: it suggests the nearest known one, or lists all."""
    words = sorted(known)
    near = get_close_matches(word, words, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(words)}"
    return f"unknown {what} {word!r}: {hint}"
