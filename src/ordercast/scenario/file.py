"""Reads a scenario file, and says exactly what is wrong with it: file, line, key, nearest key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ordercast.errors import UsageError, unknown_word
from ordercast.kernel.family import Family, Plan
from ordercast.levels import Choice, choose, find_family, level_type
from ordercast.protocol.families import FAMILIES
from ordercast.scenario.faults import FAULTS
from ordercast.scenario.rules import findings
from ordercast.scenario.schema import Scenario
from ordercast.settings import Finding, Source, Where, convert, dotted, located, read_source

TITLE = "a scenario"


def load_scenario(path: Path, families: Mapping[str, Family] = FAMILIES) -> Scenario:
    """The scenario in a file. UsageError is one sentence for the person who wrote the file."""
    return _checked(read_source(path, TITLE), families)


def parse_scenario(
    document: dict[str, Any],
    text: str = "",
    source: str = "<scenario>",
    families: Mapping[str, Family] = FAMILIES,
) -> Scenario:
    """The scenario in a parsed document; `text` is where lines are looked up for errors."""
    return _checked(Source(source, text, document), families)


def choices_in(scenario: Scenario, families: Mapping[str, Family] = FAMILIES) -> list[Choice]:
    """The family and the options of each group."""
    return [
        choose(scenario.family_of(group), scenario.options_of(group), families)
        for group in scenario.groups()
    ]


def plans_in(
    scenario: Scenario, families: Mapping[str, Family] = FAMILIES
) -> list[tuple[Family, Plan]]:
    """The groups as their machines are built with them."""
    groups = zip(scenario.groups(), choices_in(scenario, families), strict=True)
    return [
        (
            family,
            Plan(group.name, tuple(sorted(group.members)), own, scenario.begins_formed(group)),
        )
        for group, (family, own) in groups
    ]


def family_of_each(
    scenario: Scenario, families: Mapping[str, Family] = FAMILIES
) -> dict[str, Family]:
    """The family of each group, by the group's name."""
    return {plan.group: family for family, plan in plans_in(scenario, families)}


def parameters_of(scenario: Scenario, choices: Sequence[Choice]) -> dict[str, Any]:
    """The scenario as plain values, for the header of a trace: with the names of families."""
    plain: dict[str, Any] = msgspec.to_builtins(scenario, enc_hook=str)
    family = family_in(scenario, choices)
    for group, choice in zip(plain["group"], choices, strict=bool(scenario.group)):
        if group["family"] or choice.family.name != family:
            group["family"] = choice.family.name
    return {**plain, "family": family}


def family_in(scenario: Scenario, choices: Sequence[Choice]) -> str:
    """The name of the family that most is about, for the header of a trace."""
    groups = zip(scenario.groups(), choices, strict=True)
    return next(
        (choice.family.name for group, choice in groups if group.family is None), scenario.family
    )


def _checked(source: Source, families: Mapping[str, Family]) -> Scenario:
    if "scenario" in source.document:
        raise UsageError(f"{source.name} is an experiment, and not a scenario: use ordercast lab")
    for finding in _keys_of_faults(source.document.get("fault")):
        raise source.error(*finding)
    scenario = source.struct(Scenario, TITLE)
    for finding in _options_of_groups(scenario, families):
        raise source.error(*finding)
    for finding in findings(scenario, choices_in(scenario, families)):
        raise source.error(*finding)
    return scenario


def _keys_of_faults(given: Any) -> Iterator[Finding]:
    """Unknown kinds of faults, and keys that belong to another kind than the one of their table."""
    keys = {
        kind: {field.encode_name for field in msgspec.structs.fields(fault)}
        for kind, fault in FAULTS.items()
    }
    for index, table in enumerate(given if isinstance(given, list) else ()):
        kind = table.get("kind") if isinstance(table, dict) else None
        if not isinstance(kind, str):
            continue
        if kind not in keys:
            what = unknown_word("word", kind, FAULTS)
            yield ("fault", index, "kind"), f"fault[{index + 1}].kind: {what}"
            return
        for key in sorted(table.keys() - {"kind"} - keys[kind]):
            if owners := [other for other, own in keys.items() if key in own]:
                what = f"{key} belongs to {' and '.join(owners)}"
                yield ("fault", index, key), f"fault {index + 1} ({kind}): {what}"


def options_for(family: Family, given: dict[str, Any]) -> Any:
    """A family's options from what a file says. ValidationError tells what is wrong."""
    return convert(given, family.options)


def _options_of_groups(scenario: Scenario, families: Mapping[str, Family]) -> Iterator[Finding]:
    for index, group in enumerate(scenario.groups()):
        base: Where = ("group", index) if scenario.group else ()
        word = scenario.family_of(group)
        try:
            family = find_family(word, families)
        except UsageError as error:
            where = (*base, "family") if group.family else ("family",)
            yield where, str(error)
            return
        given = scenario.options_of(group)
        for key in given:
            known = [field.name for field in msgspec.structs.fields(level_type(family))]
            if key not in known:
                own = key in group.options and scenario.group
                where = (*(base if own else ()), "options", key)
                yield where, unknown_word(f"option of {word}", key, known)
                return
        try:
            choose(word, given, families)
        except msgspec.ValidationError as error:
            inner, what = located(str(error), level_type(family), given)
            here = not inner or inner[0] in group.options
            where = (*(base if here else ()), "options", *inner)
            yield where, f"options{dotted(inner, '.')}: {what}"
