"""Open groups in scenario files: what may be said, and what is rejected.

In the documents below, the comment `# here` marks the line that the error must point at.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

import pytest

from ordercast.errors import UsageError
from ordercast.kernel.family import Family
from ordercast.protocol.families import FAMILIES
from ordercast.scenario.file import parse_scenario

OPENS = {"fifo": FAMILIES["fifo"]._replace(opens=True)}


def assert_told(text: str, what: str, families: Mapping[str, Family]) -> None:
    """The error points at the line with the mark, and says this."""
    with pytest.raises(UsageError) as raised:
        parse_scenario(tomllib.loads(text), text, "x.toml", families)
    (line,) = [number for number, line in enumerate(text.split("\n"), 1) if "# here" in line]
    assert str(raised.value).startswith(f"x.toml:{line}: ")
    assert what in str(raised.value)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"expect": 2},
        {"expect": 2, "of": 3},
        {"founder": "n3"},
        {"anchors": ["n1", "n2"], "expect": 2},
    ],
)
def test_an_open_group_has_anchors_and_a_founder_or_a_number_that_is_expected(
    more: dict[str, Any],
) -> None:
    group = {"name": "a", "members": ["n1", "n2", "n3"], "open": True, "anchors": ["n1"]}
    document = {"name": "x", "group": [group | more]}
    (found,) = parse_scenario(document, families=OPENS).groups()
    assert found.open


OPEN = '[[group]]\nname = "a"\nmembers = ["n1", "n2"]\n'
NOT_OPEN = [
    ('anchors = ["n1"] # here', "group 'a': anchors is for open groups: add open = true"),
    ("expect = 2 # here", "group 'a': expect is for open groups: add open = true"),
    ('founder = "n1" # here', "group 'a': founder is for open groups: add open = true"),
    ("open = true # here", "group 'a' is open: say whom all know, as in anchors"),
    (
        'open = true\nanchors = ["n1"]\nformed = true # here',
        "group 'a' is open, so it forms during the run: leave formed out",
    ),
    ('open = true\nanchors = ["n3"] # here', "anchors names 'n3', which is not in members"),
    (
        'open = true\nanchors = ["n1"]\nfounder = "n3" # here',
        "founder names 'n3', which is not in members",
    ),
    (
        'open = true\nanchors = ["n1"]\nexpect = 3 # here',
        "expect is 3, but 2 run the group",
    ),
    ("of = 2 # here", "group 'a': of is for open groups: add open = true"),
    (
        'open = true\nanchors = ["n1"]\nexpect = 2\nof = 4 # here',
        "of is 4, and expect 2, which must be more than half of it",
    ),
    (
        'open = true\nanchors = ["n1"]\nof = 2 # here',
        "of is 2, and expect 0, which must be more than half of it",
    ),
    (
        'open = true\nanchors = ["n1"]\nfounder = "n1"\nexpect = 2 # here',
        "has a founder, so it waits for no number",
    ),
    (
        'open = true\nanchors = ["n1", "n2"] # here',
        "with several anchors nobody may found it",
    ),
]


@pytest.mark.parametrize(("text", "what"), NOT_OPEN)
def test_an_open_group_that_cannot_be_is_rejected_with_a_sentence(text: str, what: str) -> None:
    assert_told(f'name = "x"\n{OPEN}{text}\n', what, OPENS)


def test_nobody_founds_a_gossip_group() -> None:
    text = (
        f'name = "x"\nfamily = "gossip"\n{OPEN}open = true\n'
        'anchors = ["n1"]\nfounder = "n1" # here\n'
    )
    assert_told(text, "nobody founds a gossip group: leave founder out", FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_that_does_not_open_is_named(family: str) -> None:
    closed = {name: one._replace(opens=False) for name, one in FAMILIES.items()}
    text = f'name = "x"\nfamily = "{family}"\n{OPEN}anchors = ["n1"]\nopen = true # here\n'
    assert_told(text, f"group 'a': {family} groups do not open", closed)
