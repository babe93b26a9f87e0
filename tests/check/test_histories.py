"""Every law has histories that break it, and histories that come close and do not.

The files are in tests/histories. `broken-LAW.history` breaks the law, `sound-LAW.history` keeps
it; a second one of a law has its own words after two dashes. In each, a comment `# breaks:` names
all laws that are broken, and `# witness` marks the rows that must show it, no more and no fewer.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.check.explain import explain
from ordercast.check.laws import LAWS, check
from ordercast.check.verdict import Answer, Verdict
from ordercast.trace.schema import Row, Trace
from ordercast.trace.text import format_history, parse_history

FOLDER = Path(__file__).resolve().parent.parent / "histories"
BROKEN = sorted(FOLDER.glob("broken-*.history"))
SOUND = sorted(FOLDER.glob("sound-*.history"))


def law_of(path: Path) -> str:
    return path.stem.partition("-")[2].partition("--")[0]


def read(path: Path) -> Trace:
    return parse_history(path.read_text(encoding="utf-8"), path.name)


def breaks(path: Path) -> list[str]:
    """The laws that the file itself says it breaks, in the order of LAWS."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# breaks:"):
            names = line.removeprefix("# breaks:").split()
            assert set(names) <= set(LAWS)
            return [name for name in LAWS if name in names]
    raise AssertionError(f"{path.name} does not say what it breaks")


def marked(path: Path, trace: Trace) -> list[Row]:
    """The rows that the file marks as the witness."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.strip() and not line.startswith(("#", "run "))]
    return [
        row for line, row in zip(rows, trace.rows, strict=True) if line.rstrip().endswith("witness")
    ]


def verdict_on(path: Path) -> Verdict:
    return check(read(path), [law_of(path)])[0]


SHOWN_BY_ABSENCE = [
    path
    for path in BROKEN
    if law_of(path) in ("agreement", "completeness", "self-delivery", "safe", "durable")
    or path.stem in ("broken-view-agreement--absent", "broken-one-tree--alone")
]
"""Here the witness is the row that obliges; that another row is nowhere cannot be cut out."""
SHOWN_BY_ROWS = [path for path in BROKEN if path not in SHOWN_BY_ABSENCE]
SHOWN_BY_ROWS_ALONE = [
    path
    for path in SHOWN_BY_ROWS
    if law_of(path) not in ("no-creation", "causal", "causal-in-view")
    and "outside" not in path.stem
    and path.stem not in ("broken-one-tree", "broken-one-tree--stands")
]
"""Where no row must be missing, no row of the witness can be left out either. (Of a circle of
parents, a chain is left that has no root.)"""


def names(paths: list[Path]) -> list[str]:
    return [path.stem for path in paths]


@pytest.mark.parametrize("kind", ["broken", "sound"])
def test_every_law_has_a_history(kind: str) -> None:
    assert {law_of(path) for path in FOLDER.glob(f"{kind}-*.history")} == set(LAWS)


@pytest.mark.parametrize("path", BROKEN + SOUND, ids=names(BROKEN + SOUND))
def test_a_broken_history_breaks_the_law_in_its_name_and_no_other(path: Path) -> None:
    verdicts = check(read(path), list(LAWS))
    assert [one.law for one in verdicts if one.answer is Answer.BROKEN] == breaks(path)


@pytest.mark.parametrize("path", SOUND, ids=names(SOUND))
def test_a_sound_history_keeps_its_law(path: Path) -> None:
    assert verdict_on(path) == Verdict(law_of(path), Answer.HOLDS)


@pytest.mark.parametrize("path", BROKEN, ids=names(BROKEN))
def test_a_broken_history_is_shown_by_the_marked_rows(path: Path) -> None:
    trace = read(path)
    witness = check(trace, [law_of(path)])[0].witness
    assert sorted(witness, key=trace.rows.index) == marked(path, trace)


@pytest.mark.parametrize("path", SHOWN_BY_ROWS, ids=names(SHOWN_BY_ROWS))
def test_the_witness_alone_is_broken_too(path: Path) -> None:
    trace, law = read(path), law_of(path)
    witness = check(trace, [law])[0].witness
    again = check(Trace(trace.header, list(witness)), [law])[0]
    assert again.answer is Answer.BROKEN
    assert set(again.witness) == set(witness)


@pytest.mark.parametrize("path", SHOWN_BY_ROWS_ALONE, ids=names(SHOWN_BY_ROWS_ALONE))
def test_without_any_one_row_the_witness_is_not_broken(path: Path) -> None:
    """Without any one of its rows, the rest no longer shows the break."""
    trace, law = read(path), law_of(path)
    witness = check(trace, [law])[0].witness
    for left_out in witness:
        rest = [row for row in witness if row is not left_out]
        if law == "ticket-uniqueness" and left_out.cause == "acquired":
            continue  # whoever renews claims to own
        assert check(Trace(trace.header, rest), [law])[0].answer is not Answer.BROKEN


@pytest.mark.parametrize("path", BROKEN + SOUND, ids=names(BROKEN + SOUND))
def test_the_order_of_rows_in_the_file_does_not_matter(path: Path) -> None:
    trace = read(path)
    turned = Trace(trace.header, trace.rows[::-1])
    for verdict, other in zip(check(trace, list(LAWS)), check(turned, list(LAWS)), strict=True):
        assert (verdict.answer, set(verdict.witness)) == (other.answer, set(other.witness))


@pytest.mark.parametrize("path", BROKEN + SOUND, ids=names(BROKEN + SOUND))
def test_a_history_written_again_is_the_same(path: Path) -> None:
    trace = read(path)
    assert parse_history(format_history(trace)) == trace


@pytest.mark.parametrize("path", BROKEN, ids=names(BROKEN))
def test_every_break_can_be_explained(path: Path) -> None:
    text = explain(verdict_on(path))
    assert text.startswith(f"{law_of(path)} is broken: ")
    assert max(map(len, text.splitlines())) <= 100
