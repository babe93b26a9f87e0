"""The family of the published membership protocol: its settings, and that no live node takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.studies.published_synchrony.runs import FAMILY as NAME

from ordercast.cli.main import main
from ordercast.errors import UsageError
from ordercast.protocol.families import FAMILIES
from ordercast.scenario.file import parse_scenario
from ordercast.studies.published_synchrony import FAMILY
from ordercast.studies.published_synchrony.packets import PACKETS
from ordercast.testing import simulate
from ordercast.units import MILLISECOND

WRONG = [
    ({"alpha": "0ms"}, "alpha, prompt_after and beat must be longer than nothing"),
    ({"detect": "30ms", "beat": "20ms"}, "detect must be at least two beats"),
    ({"sides": [["n1"], ["n1", "n2"]]}, "a machine begins in one configuration"),
    ({"answers": "sometimes"}, "sometimes"),
    ({"anwsers": "every"}, "anwsers"),
    ({"limit": 0}, "limit"),
]


@pytest.mark.parametrize(("options", "what"), WRONG, ids=[what for _, what in WRONG])
def test_options_that_do_not_fit_are_rejected(options: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_scenario({"name": "x", "family": NAME, "options": options})
    assert what in str(refused.value)


@pytest.mark.parametrize("service", ["causal", "agreed", "safe"])
def test_a_group_in_which_nothing_fails_keeps_every_law(service: str) -> None:
    document = {
        "name": "x",
        "family": NAME,
        "processes": 4,
        "duration": "1s",
        "quiet": "1s",
        "options": {"service": service, "detect": "200ms"},
        "network": {"jitter": 1.0},
    }
    run = simulate(parse_scenario(document), 1)
    assert not run.outcome.error
    assert not run.broken
    assert run.outcome.delivered == 4 * run.outcome.submitted > 100
    orders = [[(event.origin, event.number) for event in run.delivered_by("n1")]]
    orders += [[(event.origin, event.number) for event in run.delivered_by("n2")]]
    assert (orders[0] == orders[1]) == (service != "causal")


def test_machines_find_breaks_and_each_other_by_themselves() -> None:
    """Silence is a break, and a beat of a foreign machine begins a join."""
    document = {
        "name": "x",
        "family": NAME,
        "processes": 3,
        "duration": "2s",
        "quiet": "1s",
        "options": {"sides": [["n1", "n2"], ["n3"]], "detect": "100ms"},
        "workload": {"rate": 5, "begins": {"n1": "500ms", "n2": "500ms", "n3": "500ms"}},
        "network": {"delay": "1ms", "jitter": 0.0, "shape": "uniform"},
        "fault": [{"at": "1s", "kind": "crash", "nodes": ["n2"]}],
    }
    run = simulate(parse_scenario(document), 1)
    assert not run.broken
    rows = [row for row in run.trace.rows if row.kind == "view"]
    for name, first in (("n1", ("n1", "n2")), ("n3", ("n3",))):
        found = [tuple(row.members or ()) for row in rows if row.process == name]
        assert found == [first, ("n1", "n2", "n3"), ("n1", "n3")]
    merged = next(row for row in rows if len(row.members or ()) == 3)
    assert merged.at < 200 * MILLISECOND  # before anybody sent a message


def test_a_live_node_rejects_the_family_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "node.toml"
    config.write_text(
        f'name = "n1"\nlisten = "127.0.0.1:0"\n[group.world]\nfamily = "{NAME}"\n'
        'members = ["n1"]\n',
        encoding="utf-8",
    )
    assert main(["node", str(config)]) == 2
    assert "runs in the simulator only" in capsys.readouterr().err


def test_the_live_codec_does_not_know_its_packets() -> None:
    live = {kind for family in FAMILIES.values() for kind in family.packets}
    assert not live & set(PACKETS)
    assert set(PACKETS) == set(FAMILY.packets)
