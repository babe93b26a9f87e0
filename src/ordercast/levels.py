"""Which family keeps a guarantee: given as an object, or as a file has it.

    chosen(ordercast.Total(by="sequencer"))           the family `sequenced`, and its options
    choose("total", {"by": "sequencer"})              the same
    choose("my_package.my_module:FAMILY", {})         a family from elsewhere

Families are given as values, by the names that files use; without, those of this version.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import msgspec

from ordercast.errors import UsageError, unknown_word
from ordercast.kernel.family import Family, Level
from ordercast.protocol.families import FAMILIES
from ordercast.settings import convert


class Choice(NamedTuple):
    family: Family
    options: Any  # as its machines take them


def find_family(word: str, families: Mapping[str, Family] = FAMILIES) -> Family:
    """By its name, or as `module:object` of any module. UsageError: there is none."""
    if word in families:
        return families[word]
    module, colon, name = word.partition(":")
    if not colon:
        raise UsageError(unknown_word("family", word, families))
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"family {word!r}: {error}") from error
    if not isinstance(found, Family):
        raise UsageError(f"family {word!r} is {type(found).__name__}, and not a Family")
    return found


def level_type(family: Family) -> Any:
    """What applications give, and what files are checked against."""
    return family.level or family.options


def not_a_level(given: object) -> UsageError:
    return UsageError(f"{given!r} is no level: give an object, such as ordercast.Fifo()")


def level_of(
    word: str, given: Mapping[str, Any], families: Mapping[str, Family] = FAMILIES
) -> Level:
    """The level of a family with these options, as a file has them.

    UsageError: there is no such family. msgspec.ValidationError: the options are wrong.
    """
    family = find_family(word, families)
    for key, value in family.settled.items():
        if given.get(key, value) != value:
            raise msgspec.ValidationError(f"{family.name} has {value!r} here - at `$.{key}`")
    level: Level = convert({**given, **family.settled}, level_type(family))
    return level


def chosen(level: object, families: Mapping[str, Family] = FAMILIES) -> Choice:
    """The family that keeps it: the one of this type that settles the most of its options."""
    keepers = [
        family
        for family in families.values()
        if type(level) is level_type(family)
        and all(getattr(level, key) == value for key, value in family.settled.items())
    ]
    if not keepers:
        raise not_a_level(level)
    family = max(keepers, key=lambda each: len(each.settled))
    fields = family.options.__struct_fields__
    return Choice(family, family.options(**{name: getattr(level, name) for name in fields}))


def choose(
    word: str, given: Mapping[str, Any], families: Mapping[str, Family] = FAMILIES
) -> Choice:
    """The family that a file means, and its options. It fails as `level_of` does."""
    named = {word: find_family(word, families)}
    return chosen(level_of(word, given, named), named | dict(families))
