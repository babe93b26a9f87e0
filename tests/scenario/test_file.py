"""Scenario files: what may be said, and what a person is told who said something else.

In the documents below, the comment `# here` marks the line that the error must point at.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from ordercast.errors import UsageError
from ordercast.protocol.fifo.options import FifoOptions
from ordercast.scenario.faults import FAULTS
from ordercast.scenario.faults.paths import Partition
from ordercast.scenario.file import load_scenario, parse_scenario
from ordercast.scenario.schema import (
    ChaosSettings,
    GroupSettings,
    NetworkSettings,
    Scenario,
    WorkloadSettings,
)
from ordercast.settings import LARGEST_FILE
from ordercast.units import MILLISECOND, SECOND

ROOT = Path(__file__).resolve().parents[2]

EVERYTHING = """
name = "all keys"
family = "fifo"
processes = 5
duration = "10s"
quiet = "5s"

[options]
window = 128
window_size = "1MiB"
retain = 1024
retain_size = "4MiB"
heartbeat = "20ms"
suspicion_limit = "500ms"
state = false

[workload]
senders = ["n1", "n2"]
rate = 50
payload = "1kB"
batch = 2
pattern = "steady"
hold_for = "2s"
begins = { n2 = "1s" }

[network]
delay = "1.5ms"
jitter = 0.5
shape = "lognormal"
spread = 0.1
loss = 0.01
duplicate = 0.02
reorder = 0.03
bandwidth = "100MB/s"
answer_within = "250ms"
[[fault]]
at = "1s"
kind = "crash"
nodes = ["n3"]
for = "3s"
disk = "lost"
[[fault]]
at = "2s"
kind = "partition"
sides = [
  ["n1", "n2"],
  ["n3"],
]
for = "1s"
[[fault]]
at = "3s"
kind = "loss"
rate = 0.5
[[fault]]
at = "4s"
kind = "slow"
nodes = ["n4"]
factor = 3.5
[[fault]]
at = "5s"
kind = "skew"
nodes = ["n5"]
by = "100ms"
drift = -0.01
[[fault]]
at = "6s"
kind = "disk"
nodes = ["n5"]
mode = "slow"
sync = "30ms"
[[fault]]
at = "7s"
kind = "give"
nodes = ["n1"]
group = "a"
input = "Backpressure"
values = { full = true }

[[group]]
name = "a"
members = ["n1", "n2", "n3"]

[[group]]
name = "b"
members = ["n3", "n4", "n5"]
family = "fifo"
options = { window = 64 }

[chaos]
faults = ["crash", "restart", "pause", "one-way"]
every = "2s"
longest = "1s"
survivors = 3
disks = "kept"
jump = "0s"
also = { slow-reader = "3s" }
"""


def told(folder: Path, text: str | bytes) -> str:
    """What the writer of this file is told, without the folder."""
    path = folder / "x.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError) as raised:
        load_scenario(path)
    message = str(raised.value)
    assert "\n" not in message
    return message.removeprefix(f"{folder}/")


def assert_told(folder: Path, text: str, what: str) -> None:
    """The error points at the line with the mark, and says this."""
    lines = [number for number, line in enumerate(text.split("\n"), 1) if "# here" in line]
    where = f"x.toml:{lines[0]}: " if lines else "x.toml: "
    message = told(folder, text)
    assert message.startswith(where), message
    assert what in message


# --- what may be said ------------------------------------------------------------------------


def test_every_key_is_accepted() -> None:
    scenario = parse_scenario(tomllib.loads(EVERYTHING))
    assert scenario.names == ("n1", "n2", "n3", "n4", "n5")
    assert scenario.network.delay == 1.5 * MILLISECOND
    assert scenario.workload.payload == 1000
    assert scenario.senders() == ("n1", "n2")
    assert isinstance(scenario.fault[1], Partition)
    assert scenario.fault[1].sides == [["n1", "n2"], ["n3"]]
    assert scenario.fault[1].lasts == SECOND
    a, b = scenario.groups()
    assert scenario.options_of(a)["window"] == 128
    assert scenario.options_of(b)["window"] == 64
    assert scenario.options_of(b)["retain"] == 1024  # as at the top


def test_the_example_above_leaves_no_key_out() -> None:
    document = tomllib.loads(EVERYTHING)
    for kind, tables in (
        (Scenario, [document]),
        (FifoOptions, [document["options"]]),
        (WorkloadSettings, [document["workload"]]),
        (NetworkSettings, [document["network"]]),
        *((kind, document["fault"]) for kind in FAULTS.values()),
        (GroupSettings, document["group"]),
        (ChaosSettings, [document["chaos"]]),
    ):
        keys = {field.encode_name for field in msgspec.structs.fields(kind)}
        said = {key for table in tables for key in table}
        # fifo has no rounds and no services (tests/test_services.py), and its groups do not form:
        # see tests/sim/test_reform.py. Open groups have a file of their own: test_open_groups.py.
        open_keys = {"open", "anchors", "expect", "of", "founder"}
        # Nor has it logs: tests/protocol/feed/test_scenarios.py.
        logged_keys = {"replies", "places"}
        assert keys - said <= {"per_round", "service", "formed", "group"} | open_keys | logged_keys


def test_a_name_is_enough() -> None:
    scenario = parse_scenario({"name": "x"})
    assert [(group.name, group.members) for group in scenario.groups()] == [
        ("g", ["n1", "n2", "n3", "n4", "n5"])
    ]


def test_the_example_in_the_documentation_loads(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    found = re.search(r"```toml[^\n]*\n(.*?)```", page, re.DOTALL)
    assert found
    path = tmp_path / "x.toml"
    path.write_text(found[1], encoding="utf-8")
    assert load_scenario(path).name == "one crash"


@pytest.mark.parametrize("kind", FAULTS)
def test_the_documentation_has_every_key_of_every_fault(kind: str) -> None:
    page = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.split("\n") if line.startswith(f"| `{kind}` |")]
    what, keys, live = row.split(" | ")[1:]
    for field in msgspec.structs.fields(FAULTS[kind]):
        if field.encode_name not in ("at", "lasts"):
            instant = field.encode_name == "for" and kind in ("reform", "join", "give", "rot")
            assert re.search(rf"`{field.encode_name}\b", keys) or instant
    assert what
    assert (live.strip(" |") == "no") == bool(FAULTS[kind].why_not_live)


def test_the_documentation_has_every_key_of_chaos() -> None:
    page = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    table = page.partition("[chaos]")[2].partition("```")[0]
    for field in msgspec.structs.fields(ChaosSettings):
        assert f"\n{field.encode_name} = " in table


@pytest.mark.parametrize("path", sorted(ROOT.glob("scenarios/*.toml")), ids=lambda path: path.stem)
def test_every_scenario_that_we_ship_loads(path: Path) -> None:
    assert load_scenario(path).name


# --- keys that nobody knows ------------------------------------------------------------------

UNKNOWN_KEYS = {
    "top": ("familiy = 'fifo' # here", "a scenario 'familiy': did you mean 'family'"),
    "top, nothing near": ("zzz = 1 # here", "a scenario 'zzz': known are chaos, duration,"),
    "options": ("[options]\nwindw = 3 # here", "option of fifo 'windw': did you mean 'window'"),
    "dotted": ("options.windw = 3 # here", "option of fifo 'windw': did you mean 'window'"),
    "quoted": ("'work.load' = 3 # here", "a scenario 'work.load': did you mean 'workload'"),
    "workload": ("[workload]\nrat = 3 # here", "workload 'rat': did you mean 'rate'"),
    "inline": ("workload = { rat = 3 } # here", "workload 'rat': did you mean 'rate'"),
    "network": ("[network]\nlos = 0.1 # here", "network 'los': did you mean 'loss'"),
    "chaos": ("[chaos]\nfault = [] # here", "chaos 'fault': did you mean 'faults'"),
    "fault": ("[[fault]]\n[[fault]]\nnode = [] # here", "fault[2] 'node': did you mean 'nodes'"),
    "after a list of many lines": (
        '[[fault]]\nsides = [\n  ["n1"],\n  ["n2"]\n]\nfro = "1s" # here',
        "fault[1] 'fro': did you mean 'for'",
    ),
    "group": ("[[group]]\nmember = [] # here", "group[1] 'member': did you mean 'members'"),
    "a group's options": (
        '[[group]]\nname = "a"\nmembers = ["n1"]\noptions = { windw = 1 } # here',
        "option of fifo 'windw': did you mean 'window'",
    ),
    "a group's table of options": (
        '[[group]]\nname = "a"\nmembers = ["n1"]\n'
        '[[group]]\nname = "b"\nmembers = ["n2"]\n[group.options]\nwindw = 1 # here',
        "option of fifo 'windw': did you mean 'window'",
    ),
}


@pytest.mark.parametrize("case", UNKNOWN_KEYS)
def test_an_unknown_key_is_reported_with_its_line_and_the_nearest_key(
    tmp_path: Path, case: str
) -> None:
    text, what = UNKNOWN_KEYS[case]
    assert_told(tmp_path, f'name = "x"\n{text}\n', what)


# --- values that cannot be -------------------------------------------------------------------

VALUES = [
    ('duration = "10 parsecs" # here', "duration: '10 parsecs' is not a duration: write a number"),
    ("duration = 10 # here", "duration: 10 is not a duration: write a number with a unit (ns,"),
    ('duration = "0s" # here', "duration must be longer than nothing"),
    ('duration = "-1s" # here', "'-1s' is not a duration"),
    ('quiet = "-1s" # here', "'-1s' is not a duration"),
    ('quiet = "25h" # here', "duration and quiet together may be one day at most"),
    (
        "[workload]\nrate = 1e-300 # here",
        "workload.rate: give a number that is >= 1e-06, not 1e-300",
    ),
    ("[network]\nloss = 1.5 # here", "network.loss: give a number that is <= 1.0, not 1.5"),
    ('[network]\ndelay = "0ms" # here', "network.delay must be longer than nothing"),
    ('[network]\nbandwidth = "100MB" # here', "'100MB' is not a rate: write a number with a unit"),
    ('[network]\nbandwidth = "0B/s" # here', "network.bandwidth must be more than nothing"),
    ('[network]\nanswer_within = "0s" # here', "answer_within must be longer than nothing"),
    ("[network]\nloss = 0.99 # here", "network.loss may be 0.95 at most"),
    ('[network]\nshape = "uniform"\njitter = 2 # here', "jitter of a uniform delay is 1 at most"),
    ('[network]\nshape = "unifrom" # here', "unknown word 'unifrom': did you mean 'uniform'?"),
    ('[workload]\npayload = "3s" # here', "'3s' is not a size"),
    ("[workload]\nper_round = 0.2 # here", "fifo has no rounds: say workload.rate instead"),
    ('[workload]\nsenders = ["n1", "n6"] # here', "no process 'n6': they are n1 to n5"),
    ('[workload]\nsenders = ["n1", "n1"] # here', "workload.senders lists a process twice"),
    ('[workload]\nbegins = { n9 = "1s" } # here', "workload.begins: n9 is no sender"),
    ('[workload]\nbegins = { n1 = "10s" } # here', "n1 begins when the load is over"),
    ('[workload]\nbegins = { n1 = "soon" } # here', "'soon' is not a duration"),
    ('[workload]\nhold_for = "0s" # here', "workload.hold_for must be longer than nothing"),
    ("[workload]\nsenders = 6 # here", "workload.senders is 6, but there are 5 processes"),
    ('[workload]\nsenders = "al" # here', "unknown word 'al': did you mean 'all'?"),
    ("name = 7 # here", "name: expected text, not a whole number"),
    ('name = "" # here', "name: give at least 1 character"),
    ("processes = 2.5 # here", "processes: expected a whole number, not a number"),
    ("processes = true # here", "processes: expected a whole number, not true or false"),
    ("workload = 3 # here", "workload: expected a table, not a whole number"),
    ("[fault] # here\nat = '1s'", "fault: expected a list, not a table"),
    ('family = "fifoo" # here', "unknown family 'fifoo': did you mean 'fifo'?"),
    ("[options]\nwindow = 0 # here", "options.window: give a number that is >= 1"),
    ('[options]\nheartbeat = "soon" # here', "options.heartbeat: 'soon' is not a duration"),
    ("[options] # here\nretain = 1", "options: retain must be at least window"),
    ('[[group]] # here\nname = "a"\nmembers = []', "group 'a' has no members"),
    ('[[group]] # here\nname = "a"\nmembers = ["n7"]', "there is no process 'n7'"),
    ('[[group]] # here\nname = "a"\nmembers = ["n1", "n1"]', "group 'a' lists a member twice"),
    ('[[group]] # here\nname = "a"', "group[1]: members is missing"),
    ('[[group]]\nname = "" # here\nmembers = ["n1"]', "'' is no name for a group"),
    ('[[group]]\nname = "a\\nb" # here\nmembers = ["n1"]', r"'a\nb' is no name for a group"),
    ('[[group]]\nname = "a\\u0000" # here\nmembers = ["n1"]', r"'a\x00' is no name for a group"),
    ("[chaos]\nfaults = [] # here", "chaos.faults is empty: name at least one kind"),
    ('[chaos]\nfaults = ["crach"] # here', "unknown word 'crach': did you mean 'crash'?"),
    ('[chaos]\nfaults = ["loss"]\nevery = "0s" # here', "chaos.every must be longer than nothing"),
    ('[chaos]\nfaults = ["loss"]\nlongest = "0s" # here', "longest must be longer than nothing"),
    (
        '[chaos]\nfaults = ["loss"]\nsurvivors = 0 # here',
        "survivors: give a number that is >=",
    ),
]


@pytest.mark.parametrize(("text", "what"), VALUES)
def test_a_wrong_value_is_rejected_with_a_sentence(tmp_path: Path, text: str, what: str) -> None:
    name = "" if text.startswith("name") else 'name = "x"\n'
    assert_told(tmp_path, f"{name}{text}\n", what)


def test_two_groups_of_one_name_are_rejected_at_the_second(tmp_path: Path) -> None:
    group = 'name = "a"\nmembers = ["n1"]\n'
    text = f'name = "x"\n[[group]]\n{group}[[group]] # here\n{group}'
    assert_told(tmp_path, text, "two groups are named 'a'")


FAULT = '[[fault]]\nat = "1s"\nnodes = ["n1"]\n'
NUMBERS = [
    *(f"[workload]\n{key}" for key in ("rate", "per_round")),
    *(f"[network]\n{key}" for key in ("loss", "jitter", "spread", "duplicate", "reorder")),
    *(f'{FAULT}kind = "{kind}"\n{key}' for kind, key in (("loss", "rate"), ("slow", "factor"))),
    f'{FAULT}kind = "skew"\ndrift',
]


@pytest.mark.parametrize("number", ["nan", "inf", "-1"])
@pytest.mark.parametrize("place", NUMBERS)
def test_nan_and_infinity_are_rejected(tmp_path: Path, place: str, number: str) -> None:
    key = place.rpartition("\n")[2]
    assert_told(tmp_path, f'name = "x"\n{place} = {number} # here\n', f"{key}: give a number")


# --- faults that cannot be -------------------------------------------------------------------

WRONG = [
    ('kind = "crash"\nnodes = ["n6"] # here', "fault 2 (crash): there is no process 'n6'"),
    ('kind = "partition"\nsides = [["n1"], ["m2"]] # here', "there is no process 'm2'"),
    ('kind = "partition"\nsides = [["n1", "n2"], ["n2"]] # here', "cannot be on two sides"),
    ('kind = "pause"', 'names no process: add nodes = ["n1"]'),
    ('kind = "skew"\nby = "1s"\nnodes = []', 'names no process: add nodes = ["n1"]'),
    ('kind = "partition"', 'says no sides: add sides = [["n1"], ["n2"]]'),
    ('kind = "partition"\nsides = [["n1"]] # here', "takes two sides or more"),
    ('kind = "partition"\nsides = [["n1"], []] # here', "none of them empty"),
    ('kind = "one-way"\nsides = [["n1"], ["n2"], ["n3"]] # here', "a one-way cut has two sides"),
    ('kind = "one-way"\nsides = [["n1"], ["n2"]]\nnodes = ["n1"] # here', "not both"),
    ('kind = "partition"\nnodes = ["n1", "n2", "n3", "n4", "n5"] # here', "names all processes"),
    ('kind = "crash"\nsides = [["n1"]] # here', "sides belongs to partition and one-way"),
    ('kind = "crash"\nnodes = ["n1"]\nfor = "0s" # here', "for must be longer than nothing"),
    ('kind = "crach" # here', "unknown word 'crach': did you mean 'crash'?"),
    ('kind = "crash"\ndisk = "los" # here', "unknown word 'los': did you mean 'lost'?"),
]


@pytest.mark.parametrize(("fault", "what"), WRONG)
def test_an_impossible_fault_is_rejected_with_a_sentence(
    tmp_path: Path, fault: str, what: str
) -> None:
    header = "[[fault]]" if "# here" in fault else "[[fault]] # here"
    fine = '[[fault]]\nat = "1s"\nkind = "crash"\nnodes = ["n1"]\n'
    assert_told(tmp_path, f'name = "x"\n{fine}{header}\nat = "2s"\n{fault}\n', what)


def test_a_fault_after_the_end_is_rejected(tmp_path: Path) -> None:
    text = 'name = "x"\nduration = "3s"\n[[fault]]\nkind = "loss"\nat = "3001ms" # here\n'
    assert_told(tmp_path, text, "fault 1 (loss): at 3001ms is after the load ends (3s)")


def test_a_process_that_crashed_for_good_cannot_be_restarted(tmp_path: Path) -> None:
    text = """name = "x"
[[fault]]
at = "2s"
kind = "restart"
nodes = ["n1"] # here
[[fault]]
at = "1s"
kind = "crash"
nodes = ["n1"]
"""
    assert_told(tmp_path, text, "n1 crashed for good at 1s: give that crash a for")


# --- what no machine could hold --------------------------------------------------------------

MANY = ", ".join(f'"n{number}"' for number in range(1, 3001))
OTHERS = ", ".join(f'"n{number}"' for number in range(3001, 6001))
GROUP = '[[group]]\nname = "a"\nmembers = ["n1"]\n'
ENORMOUS = [
    (f"processes = {10**9} # here", "processes: give a number that is <= 100000"),
    ("processes = 101 # here", "group 'g' has 101 members; a fifo group has at most 100"),
    (f"[workload]\nsenders = 0x{'f' * 6000} # here", "workload.senders: give a number that is <="),
    ('[workload]\npayload = "17MiB" # here', "workload.payload may be 16777216 bytes at most"),
    (f"[workload]\npayload = {10**30} # here", "is not a size"),
    ('[workload]\npayload = "1kB"\nbatch = 99999 # here', "may be 16777216 bytes at most"),
    ("[workload]\nbatch = 1000000000 # here", "workload.batch: give a number that is <= 100000"),
    ("[workload]\nrate = 1e9 # here", "workload.rate: give a number that is <= 1000000.0"),
    ("[workload] # here\nrate = 1000000", "the load is 50000000 messages of 100 bytes"),
    ('[workload] # here\nrate = 1000\npayload = "1MB"', "more than a simulation holds"),
    (
        'duration = "10h"\n[workload] # here\nrate = 1000',
        "lower rate, duration, senders or payload",
    ),
    (f'duration = "{"9" * 900}h" # here', "99999999999999999999... is too large"),
    (
        f'[chaos]\nfaults = ["loss"]\nsurvivors = {10**30} # here',
        "survivors: give a number",
    ),
    ('duration = "2h"\n[chaos]\nfaults = ["loss"]\nevery = "1ns" # here', "over 100000 faults"),
    (
        f'processes = 90000\n{GROUP}[chaos]\nfaults = ["loss", "one-way"] # here',
        "a one-way of 90000 processes cuts over 4000000 paths",
    ),
    (
        f'processes = 6000\n{GROUP}[[fault]]\nat = "1s"\nkind = "partition"\n'
        f"sides = [[{MANY}], [{OTHERS}]] # here",
        "cuts over 4000000 paths: name fewer",
    ),
]


@pytest.mark.parametrize(("text", "what"), ENORMOUS, ids=[text[:40] for text, _ in ENORMOUS])
def test_sizes_that_no_computer_could_hold_are_rejected(
    tmp_path: Path, text: str, what: str
) -> None:
    assert_told(tmp_path, f'name = "x"\n{text}\n', what)


# --- files that are none ---------------------------------------------------------------------


def test_invalid_toml_is_reported_with_its_line(tmp_path: Path) -> None:
    assert_told(tmp_path, 'name = "x"\nprocesses = = 3 # here\n', "not TOML: Invalid value")
    assert_told(tmp_path, 'name = "x"\nname = "y" # here', "not TOML: Cannot overwrite")
    assert_told(tmp_path, 'name = "x"\n\noptions = [1, # here', "not TOML: ")


def test_a_file_that_is_not_utf8_is_rejected(tmp_path: Path) -> None:
    assert told(tmp_path, b'name = "\xff"') == "x.toml: not a text file in UTF-8"


def test_a_missing_file_and_a_folder_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.toml: cannot be read: No such file"):
        load_scenario(tmp_path / "no.toml")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        load_scenario(tmp_path)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    text = 'name = "x"\n' + "#" * LARGEST_FILE
    assert told(tmp_path, text) == "x.toml: over 1048576 bytes; a scenario is a small text file"


@pytest.mark.parametrize("text", ["x = " + "[" * 5000, "x = " + "1" * 9000])
def test_errors_of_the_parser_are_reported(tmp_path: Path, text: str) -> None:
    assert told(tmp_path, text) == "x.toml: a number is too long, or tables lie too deep"


def test_an_empty_file_is_rejected_because_it_has_no_name(tmp_path: Path) -> None:
    assert told(tmp_path, "") == "x.toml: name is missing"
