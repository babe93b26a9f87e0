"""Members are killed and started again in a loop, under load; who is there in the end has it all.

Short versions of what scenarios/live runs for two minutes.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from ordercast.live.run import plan_of
from ordercast.scenario.file import load_scenario
from ordercast.trace.lake import read_lake
from ordercast.trace.schema import Row

ROOT = Path(__file__).resolve().parents[2]
LONG = sorted((ROOT / "scenarios" / "live").glob("*.toml"))
KILLING = [path for path in LONG if path.stem != "crowd"]
Life = tuple[str, int]


def shortened(name: str, folder: Path) -> Path:
    """Six seconds of it, with a kill a second, and a load for which a slow machine has time.

    Nor may one that is slow to settle how far a dead sender got be taken for one that loses.
    """
    text = (ROOT / "scenarios" / "live" / f"{name}.toml").read_text(encoding="utf-8")
    for old, new in [
        ('duration = "2min"', 'duration = "6s"\noptions = { suspicion_limit = "3s" }'),
        ('every = "2s"', 'every = "1s"'),
        ("rate = 2000", "rate = 500"),
    ]:
        text = text.replace(old, new)
    kept = [line for line in text.splitlines() if not _is_a_later_fault(line)]
    path = folder / f"{name}.toml"
    path.write_text("\n".join(kept), encoding="utf-8")
    return path


def _is_a_later_fault(line: str) -> bool:
    at = line.partition('{ at = "')[2].partition('"')[0]
    return bool(at) and at not in ("2s", "4500ms")


class Story:
    """What became of every event, as the rows have it."""

    def __init__(self, rows: list[Row]) -> None:
        self.delivered: dict[tuple[str | None, int | None], Counter[Life]] = {}
        self.joined: dict[Life, int] = {}  # when it installed its first view
        self.standing: set[Life] = set()  # who was there in the end
        self.submits: list[tuple[Row, tuple[str, ...]]] = []  # with the view of who sent
        view: dict[Life, tuple[str, ...]] = {}
        for row in rows:
            life = (row.process, row.incarnation)
            if row.kind == "view":
                view[life] = tuple(row.members or ())
                self.joined.setdefault(life, row.at)
            elif row.kind == "submit":
                self.submits.append((row, view[life]))
            elif row.kind == "deliver":
                self.delivered.setdefault((row.origin, row.number), Counter())[life] += 1
            elif row.kind == "stop":
                self.standing.add(life)

    def missing(self) -> tuple[int, list[str]]:
        """How many deliveries were owed to who was there in the end, and those that lack.

        Owed is what somebody sent into a view of its own with them, and what others of them have
        if it died. That they gave it up openly is no excuse.
        """
        owed, lacking = 0, []
        for row, members in self.submits:
            got = self.delivered.get((row.process, row.number), Counter())
            bound = [
                life for life in self.standing if life[0] in members and self.joined[life] <= row.at
            ]
            if (row.process, row.incarnation) in self.standing or any(map(got.get, bound)):
                owed += len(bound)
                lacking += [f"{life} lacks {row}" for life in bound if not got[life]]
        return owed, lacking


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kill_loop", "survivors"])
def test_members_killed_in_a_loop_lose_and_repeat_nothing(
    ordercast, tmp_path: Path, name: str
) -> None:
    ran = ordercast("live", shortened(name, tmp_path), "--json", "--out", tmp_path / "lake")
    assert ran.code == 0, ran.out + ran.err
    told = json.loads(ran.out)
    assert {law["answer"] for law in told["laws"]} == {"holds"}
    (trace,) = read_lake(tmp_path / "lake")
    kinds = Counter(row.kind for row in trace.rows)
    assert told["crashes"] == kinds["crash"] >= 2
    assert told["given_up"] == kinds["lose"]
    story = Story(trace.rows)
    assert len(story.standing) == 5
    assert all(set(got.values()) == {1} for got in story.delivered.values())
    owed, lacking = story.missing()
    assert owed > 0
    assert lacking == []


@pytest.mark.parametrize("path", KILLING, ids=lambda path: path.stem)
def test_the_long_scenarios_kill_a_member_every_few_seconds_for_two_minutes(path: Path) -> None:
    for seed in range(5):
        plan = plan_of(load_scenario(path), seed)
        assert plan.duration == 120 * 10**9
        assert {fault.kind for fault in plan.faults} == {"restart"}
        assert all(fault.until is not None for fault in plan.faults)
        assert 40 <= len(plan.faults) <= 90


def test_the_long_scenarios_are_in_the_table_of_the_folder() -> None:
    table = (ROOT / "scenarios" / "README.md").read_text(encoding="utf-8")
    assert LONG
    assert not [path.stem for path in LONG if f"[{path.stem}](live/{path.name})" not in table]
