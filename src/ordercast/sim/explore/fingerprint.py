"""The canonical encoding of an object's state, by which the explorer knows a state again.

Theory of operation. The encoding is a walk over everything that a machine holds. It is injective:
every value is tagged with its type and every sequence with its length, so two values with the
same bytes behave alike, whatever is done to both. Where in doubt it tells apart: to take equal
states for different costs time, to take different states for equal would hide a bug.

  order     Dicts are written in insertion order, because iterating over one follows it. Sets are
            written sorted, because no machine may iterate one. Attributes are written sorted.
  sharing   An object that can change and is held in two places is written once and then
            referred to: a list held twice is not two equal lists. This also ends cycles.
  values    A frozen msgspec struct is a value, lists inside it included: nobody changes packets,
            events and options once they are made. It may hold nothing that is not a value.
  refused   What hides its state from Python (generators, locks, iterators, open files), and
            functions that are not found by name. TypeError says where it was found.

`fingerprint` is the BLAKE2b of the encoding, 128 bits. Two different states among n get the same
with a probability below n² / 2¹²⁹, for ten million states about 10⁻²⁵; the explorer would then
leave out what only the second one can do. It would never report a break that is none.
Nothing here depends on PYTHONHASHSEED or on addresses in memory.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from enum import Enum
from hashlib import blake2b
from random import Random
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, TypeAlias

import msgspec

Frozen: TypeAlias = dict[int, tuple[object, bytes]]
"""Frozen structs by id, each with its encoding. Holding the object keeps its id its own."""

DIGEST_BYTES = 16


def fingerprint(value: object) -> bytes:
    """Equal for values that behave alike as far as the walk can tell; see above."""
    return digest(encode(value))


def digest(encoding: bytes) -> bytes:
    return blake2b(encoding, digest_size=DIGEST_BYTES).digest()


def encode(value: object) -> bytes:
    return Walk().encode(value)


class Walk:
    """One walk. `known` are encodings to reuse; `frozen` are those that this walk met."""

    __slots__ = ("_in_value", "_met", "_out", "frozen", "known")

    def __init__(self, known: Frozen | None = None) -> None:
        self.known: Frozen = known or {}
        self.frozen: Frozen = {}
        self._out: list[bytes] = []
        self._met: dict[int, int] = {}  # what can change, by id, in the order it was met
        self._in_value = False

    def encode(self, value: object) -> bytes:
        self._write(value)
        return b"".join(self._out)

    def _write(self, value: Any) -> None:
        write = _WRITERS.get(type(value))
        if write is not None:
            write(self, value)
        else:
            self._unusual(value)

    def _is_repeated(self, value: object) -> bool:
        """Writes a reference to what was written before. Inside a value nothing can change."""
        if self._in_value:
            return False
        place = self._met.get(id(value))
        if place is None:
            self._met[id(value)] = len(self._met)
            return False
        self._out.append(b"@%d;" % place)
        return True

    def _apart(self, value: object) -> bytes:
        """The encoding of a value on its own: it holds nothing that can change."""
        walk = Walk(self.known)
        walk._in_value = True
        return walk.encode(value)

    # --- the usual types -----------------------------------------------------------------------

    def _constant(self, value: object) -> None:
        self._out.append(b"%r;" % value)  # None, True, False, ...

    def _integer(self, value: int) -> None:
        self._out.append(b"i%d;" % value)

    def _float(self, value: float) -> None:
        self._out.append(b"f%b;" % value.hex().encode())

    def _text(self, value: str) -> None:
        self._bytes(value.encode("utf-8", "surrogatepass"), b"s")

    def _bytes(self, value: bytes, tag: bytes = b"b") -> None:
        self._out.append(b"%b%d:%b" % (tag, len(value), value))

    def _tuple(self, value: tuple[Any, ...]) -> None:
        self._items(b"(", value)

    def _list(self, value: list[Any]) -> None:
        if not self._is_repeated(value):
            self._items(b"[", value)

    def _dict(self, value: dict[Any, Any]) -> None:
        if not self._is_repeated(value):
            self._pairs(value)

    def _pairs(self, value: dict[Any, Any]) -> None:
        self._out.append(b"{%d:" % len(value))
        for key, item in value.items():
            self._write(key)
            self._write(item)

    def _set(self, value: set[Any]) -> None:
        if not self._is_repeated(value):
            self._frozenset(value, b"<")

    def _frozenset(self, value: Iterable[Any], tag: bytes = b"=") -> None:
        members = sorted(map(self._apart, value))
        self._out.append(b"%b%d:%b" % (tag, len(members), b"".join(members)))

    def _items(self, tag: bytes, items: Any) -> None:
        self._out.append(b"%b%d:" % (tag, len(items)))
        for item in items:
            self._write(item)

    # --- the others ----------------------------------------------------------------------------

    def _unusual(self, value: Any) -> None:
        kind = type(value)
        if isinstance(value, msgspec.Struct):
            self._struct(value)
        elif isinstance(value, Enum):
            self._bytes(f"{_name_of(kind)}.{value.name}".encode(), b"E")
        elif isinstance(value, (type, FunctionType, BuiltinFunctionType)):
            self._bytes(_name_of(value).encode(), b"c")
        elif isinstance(value, MethodType):
            self._bytes(value.__name__.encode(), b"m")
            self._write(value.__self__)
        elif isinstance(value, Random):
            if not self._is_repeated(value):
                self._bytes(repr((_name_of(kind), value.getstate())).encode(), b"R")
        elif builtin := next((base for base in _EXTENDED if isinstance(value, base)), None):
            self._extended(value, builtin)
        elif self._in_value:
            raise TypeError(f"{_name_of(kind)} can change, but is held by a value or in a set")
        elif not self._is_repeated(value):
            _refuse_hidden_state(value)
            self._bytes(_name_of(kind).encode(), b"O")
            self._attributes(value)

    def _struct(self, value: msgspec.Struct) -> None:
        if not value.__struct_config__.frozen:
            if self._in_value:
                raise TypeError(f"{_name_of(type(value))} can change, but is held by a value")
            if not self._is_repeated(value):
                self._out.append(self._struct_head(value))
                for field in value.__struct_fields__:
                    self._write(getattr(value, field))
            return
        found = self.known.get(id(value)) or self.frozen.get(id(value))
        if found is None:
            fields = [getattr(value, field) for field in value.__struct_fields__]
            found = value, self._struct_head(value) + b"".join(map(self._apart, fields))
        self.frozen[id(value)] = found
        self._out.append(found[1])

    def _struct_head(self, value: msgspec.Struct) -> bytes:
        name = _name_of(type(value)).encode()
        return b"S%d:%b" % (len(name), name)

    def _extended(self, value: Any, builtin: type) -> None:
        """A subclass of a built-in type: the type, what it adds, and the built-in content."""
        if builtin not in _UNCHANGING and self._is_repeated(value):
            return
        self._bytes(_name_of(type(value)).encode(), b"X")
        if type(value) not in _EXTENDED:
            self._attributes(value)
        if builtin is str:
            self._text(str.__str__(value))  # str(value) may be what the subclass makes of it
        elif builtin in _ATOMS:
            plain: Any = builtin
            self._write(plain.__new__(plain, value))
        elif issubclass(builtin, dict):
            self._write(getattr(value, "default_factory", None))
            self._pairs(value)
        elif builtin in (set, frozenset):
            self._frozenset(value)
        else:
            self._write(getattr(value, "maxlen", None))
            self._items(b"(", value)

    def _attributes(self, value: Any) -> None:
        found: dict[str, Any] = dict(getattr(value, "__dict__", ()))
        for kind in type(value).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                name = _mangled(kind, slot)
                if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                    found[name] = getattr(value, name)
        self._out.append(b"a%d:" % len(found))
        for name in sorted(found):
            self._text(name)
            self._write(found[name])


def _mangled(kind: type, slot: str) -> str:
    """A slot called __x is stored as _Kind__x."""
    hidden = slot.startswith("__") and not slot.endswith("__")
    return f"_{kind.__name__.lstrip('_')}{slot}" if hidden else slot


def _name_of(thing: Any) -> str:
    name = f"{thing.__module__}.{thing.__qualname__}"
    if isinstance(thing, FunctionType) and ("<" in name or thing.__closure__):
        raise TypeError(f"{name} is a function that only its own code can tell from others")
    if isinstance(thing, BuiltinFunctionType) and not isinstance(thing.__self__, type(msgspec)):
        raise TypeError(f"{name} is bound to something that a walk cannot see")
    return name


_PLAIN: dict[type, None] = {}  # types whose instances have no state but their attributes


def _refuse_hidden_state(value: object) -> None:
    """Asks Python itself: it knows whether attributes are all there is to an object."""
    kind = type(value)
    if kind in _PLAIN:
        return
    own = kind.__reduce__ is not object.__reduce__ or kind.__reduce_ex__ is not object.__reduce_ex__
    try:
        if own:
            raise TypeError("it says itself how it is copied")
        value.__reduce_ex__(4)
    except TypeError as error:
        raise TypeError(f"the state of a {_name_of(kind)} cannot be seen: {error}") from None
    _PLAIN[kind] = None


_ATOMS = (int, float, str, bytes)
_UNCHANGING = (*_ATOMS, tuple, frozenset)
_EXTENDED: tuple[type, ...] = (
    *(OrderedDict, defaultdict, Counter, dict, deque, list, set),
    *_UNCHANGING,
)
_WRITERS: dict[type, Callable[[Walk, Any], None]] = {
    type(None): Walk._constant,
    type(...): Walk._constant,
    bool: Walk._constant,
    int: Walk._integer,
    float: Walk._float,
    str: Walk._text,
    bytes: Walk._bytes,
    tuple: Walk._tuple,
    list: Walk._list,
    dict: Walk._dict,
    set: Walk._set,
    frozenset: Walk._frozenset,
}
