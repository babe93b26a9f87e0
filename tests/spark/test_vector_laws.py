"""Laws by vectors against the plain reference: every verdict equal, witness and words included.

The traces: all handwritten histories, random ones that nobody made sound, sound runs, and sound
runs spoilt in every way that one or two rows allow. That the vectors do the work themselves is
claimed too: on sound runs, and on most broken ones, the reference sees only a few rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.check.mutations import MUTATIONS, renumbered
from tests.check.small_groups import SmallGroups
from tests.check.sound_runs import SoundRun
from tests.check.test_oracles import random_tickets, random_trace

from ordercast.check.laws import check
from ordercast.check.verdict import Answer
from ordercast.consistency import LAWS
from ordercast.errors import TraceError
from ordercast.spark.columns import columns_of, count_rows, read_columns
from ordercast.spark.laws import judge
from ordercast.spark.vector import Vectors, judge_columns
from ordercast.spark.vector_delivery import total
from ordercast.trace.lake import read_run
from ordercast.trace.parquet import arrow_schema, load_pyarrow, run_folder, write_trace
from ordercast.trace.schema import COLUMNS, KINDS, Ending, Header, Level, Row, Trace
from ordercast.trace.text import parse_history
from ordercast.types import event_number

HISTORIES = sorted((Path(__file__).resolve().parents[1] / "histories").glob("*.history"))
SPOILT = 1200
RANDOM = 350
ALL = list(LAWS)


def compare(trace: Trace, what: object) -> Vectors:
    """Every law, asked of both."""
    vectors = Vectors(columns_of(trace))
    for expected in check(trace, ALL):
        assert vectors.judge(expected.law) == expected, what
    return vectors


def with_header(trace: Trace, **fields: Any) -> Trace:
    return Trace(msgspec.structs.replace(trace.header, **fields), trace.rows)


def sound(seed: int, *, size: int = 0, faults: bool | None = None) -> Trace:
    faulty = bool(seed % 2) if faults is None else faults
    return SoundRun(seed, faults=faulty, groups=1 + seed % 3, size=size or 15 + seed % 50).trace()


@pytest.mark.parametrize("path", HISTORIES, ids=[path.stem for path in HISTORIES])
def test_every_handwritten_history(path: Path) -> None:
    trace = parse_history(path.read_text(encoding="utf-8"), path.name)
    compare(trace, path.name)
    for family in ("feed", "causal"):
        for ending in Ending:
            compare(with_header(trace, family=family, ending=ending), (family, ending))


def test_random_traces() -> None:
    answers: Counter[tuple[str, Answer]] = Counter()
    for seed in range(RANDOM):
        for trace in (random_trace(seed), SmallGroups(seed).trace(), random_tickets(seed)):
            compare(trace, (trace.header.run, seed))
            answers.update((one.law, one.answer) for one in check(trace, ALL))
    for law in ALL:
        assert answers[law, Answer.BROKEN] > 5, law
        assert answers[law, Answer.HOLDS] > 20, law


def test_of_a_sound_run_the_reference_sees_hardly_a_row() -> None:
    """Neither for want of a proof nor because proofs are vague: the whole run is never asked for,
    and where deliveries are judged not one row is left."""
    for seed in range(120):
        trace = sound(seed, size=120)
        vectors = compare(trace, seed)
        for law in ALL:
            cut = vectors.cut(law)
            assert cut is not None, (seed, law)
            if law in ("no-creation", "no-duplication", "fifo", "total"):
                assert not len(cut), (seed, law)
            if law in ("optimistic-causal", "causal"):
                assert not len(cut), (seed, law)
            if law in ("agreement", "completeness"):
                assert np.array_equal(cut, vectors.events.bones), (seed, law)


# --- spoilt runs ---


def drop(rows: list[Row], chance: Random) -> None:
    del rows[chance.randrange(len(rows))]


def double(rows: list[Row], chance: Random) -> None:
    rows.insert(chance.randrange(len(rows)), chance.choice(rows))


def swap(rows: list[Row], chance: Random) -> None:
    """Two rows of one process change places."""
    one = chance.randrange(len(rows))
    same = [at for at, row in enumerate(rows) if row.process == rows[one].process]
    other = same[max(0, same.index(one) - chance.randint(1, 3))]
    rows[one], rows[other] = rows[other], rows[one]


def move(rows: list[Row], chance: Random) -> None:
    row = rows.pop(chance.randrange(len(rows)))
    rows.insert(chance.randrange(len(rows) + 1), row)


def copy_to_another(rows: list[Row], chance: Random) -> None:
    row, other = chance.choice(rows), chance.choice(rows)
    rows.append(msgspec.structs.replace(row, process=other.process, at=rows[-1].at + 1))


def pick(rows: list[Row], chance: Random, *kinds: str) -> int:
    places = [at for at, row in enumerate(rows) if not kinds or row.kind in kinds]
    return chance.choice(places or range(len(rows)))


def replaced(rows: list[Row], place: int, **columns: Any) -> None:
    rows[place] = msgspec.structs.replace(rows[place], **columns)


def renumber(rows: list[Row], chance: Random) -> None:
    at = pick(rows, chance, "submit", "deliver", "lose")
    number = rows[at].number or 0
    replaced(rows, at, number=chance.choice([number + 1, number - 1, number + (1 << 40), 1 << 50]))


def restamp(rows: list[Row], chance: Random) -> None:
    at, other = pick(rows, chance, "submit"), pick(rows, chance, "submit")
    stamp = chance.choice([rows[other].stamp, None, (), (1, 2)])
    index = chance.choice([rows[other].index, None, 1, 7, -1])
    replaced(rows, at, index=index, stamp=stamp)


def change_view(rows: list[Row], chance: Random) -> None:
    at, other = pick(rows, chance, "view"), pick(rows, chance, "view")
    members = chance.choice([rows[other].members, rows[at].members, ("n1#0", "n2")])
    replaced(rows, at, view=chance.choice([rows[other].view, -1]), members=members)


def rename(rows: list[Row], chance: Random) -> None:
    at = pick(rows, chance)
    column = chance.choice(["process", "group", "origin", "kind", "peer", "incarnation"])
    value: Any = getattr(chance.choice(rows), column)
    if column == "incarnation":
        value = rows[at].incarnation + 1
    elif value is None and column in ("process", "kind"):
        return
    replaced(rows, at, **{column: value})


def retime(rows: list[Row], chance: Random) -> None:
    at = pick(rows, chance)
    replaced(rows, at, at=chance.choice(rows).at + chance.randint(-2, 2))


def remove_a_value(rows: list[Row], chance: Random) -> None:
    column = chance.choice(["group", "origin", "number", "view", "members", "cause", "index"])
    replaced(rows, pick(rows, chance), **{column: None})


def happen(rows: list[Row], chance: Random) -> None:
    """Somebody crashes, stops, leaves, suspects or loses something; or an odd thing happens."""
    at = pick(rows, chance, "deliver", "submit")
    kind = chance.choice(["crash", "stop", "leave", "suspect", "lose", "lose", "exclude", "dance"])
    peer = chance.choice(rows).process
    rows.insert(at, msgspec.structs.replace(rows[at], kind=kind, peer=peer))


WAYS: list[Callable[[list[Row], Random], None]] = [
    drop, double, swap, swap, move, copy_to_another, renumber, restamp, change_view, rename,
    retime, remove_a_value, happen,
]  # fmt: skip


def spoilt(seed: int) -> Trace:
    chance = Random(seed)
    trace = sound(seed)
    rows = list(trace.rows)
    for _ in range(chance.choice([1, 1, 2, 3])):
        chance.choice(WAYS)(rows, chance)
    family = chance.choice([None, None, "feed", "causal", "total"])
    ending = chance.choice([Ending.FINISHED, Ending.FINISHED, Ending.CUT])
    rows = renumbered(rows) if chance.random() < 0.97 else rows
    return with_header(Trace(trace.header, rows), family=family, ending=ending)


def test_spoilt_runs() -> None:
    broken: Counter[str] = Counter()
    whole = 0
    for seed in range(SPOILT):
        trace = spoilt(seed)
        vectors = compare(trace, seed)
        broken.update(one.law for one in check(trace, ALL) if one.answer is Answer.BROKEN)
        whole += sum(vectors.cut(law) is None for law in ("fifo", "total", "agreement", "causal"))
    for law in ALL:
        assert broken[law] >= 8, (law, broken)
    assert whole < SPOILT / 4  # a causal law of a run in which something came before itself


@pytest.mark.parametrize(
    "mutation", {one.__name__: one for _, one in MUTATIONS}.values(), ids=lambda one: one.__name__
)
def test_known_ways_to_break_a_law(mutation: Callable[..., list[Row] | None]) -> None:
    tried = 0
    for seed in range(8):
        trace = sound(seed, size=40, faults=seed % 2 == 1 and "view" in mutation.__name__)
        rows = mutation(trace.rows, Random(seed))
        if rows is not None:
            compare(Trace(trace.header, renumbered(rows)), seed)
            tried += 1
    assert tried


def test_order_in_the_file_and_clocks_do_not_matter() -> None:
    """Logs one after the other, logs backwards, and clocks that are off by more than a message
    takes: pasts are those of the rows."""
    for seed in range(60):
        trace = spoilt(seed) if seed % 3 else sound(seed)
        chance = Random(seed)
        skew = {row.process: chance.randint(-5000, 5000) for row in trace.rows}
        skewed = [msgspec.structs.replace(row, at=row.at + skew[row.process]) for row in trace.rows]
        by_process = sorted(skewed, key=lambda row: row.process)
        for rows in (trace.rows[::-1], by_process, by_process[::-1]):
            compare(Trace(trace.header, rows), seed)
        if not seed % 3:
            assert Vectors(columns_of(Trace(trace.header, by_process))).clock is not None


def test_numbers_far_apart_and_many_lives() -> None:
    rows: list[Row] = []
    for life in range(40):
        for counter in (1, 1 << 39):
            event = {"group": "g", "origin": "n1", "number": event_number(life, counter)}
            for name, kind in (("n1", "submit"), ("n1", "deliver"), ("n2", "deliver")):
                row = Row(name, life, len(rows), len(rows), kind, **event)  # type: ignore[arg-type]
                rows.append(row)
    trace = Trace(Header("far", family="feed", ending=Ending.FINISHED), rows)
    compare(trace, "far")
    compare(Trace(trace.header, rows[:100] + rows[103:]), "far, and one is missing")


def test_gaps_are_seen_through() -> None:
    """n3 never got n1:1, and passes on what depends on it; n4 delivers them the wrong way round.
    Direct deliveries do not show it: the past has to be followed."""
    text = "run gap ending=finished\nn1 submit n1:1\nn2 deliver n1:1\nn2 submit n2:1\n"
    text += "n3 deliver n2:1\nn3 submit n3:1\nn4 deliver n3:1\nn4 deliver n1:1\n"
    trace = parse_history(text)
    compare(trace, "gap")
    verdict = Vectors(columns_of(trace)).judge("optimistic-causal")
    assert verdict.answer is Answer.BROKEN


def test_total_without_a_known_order_is_merged() -> None:
    """Gaps hide the order from times: n3 delivers b long before anybody delivers a."""
    text = "run late ending=finished\nn3 deliver n9:2\nn3 deliver n9:3\nn1 deliver n9:1\n"
    text += "n1 deliver n9:2\nn2 deliver n9:1\nn2 deliver n9:3\n"
    vectors = compare(parse_history(text), "late")
    assert vectors.judge("total").answer is Answer.HOLDS
    assert not len(total(vectors.events, vectors.sequences))


def test_an_exemption_in_the_middle_hides_no_later_gap() -> None:
    """By n1's clock, which went back, only its second event is older than n2. Leaving that out is
    no break, but leaving out the fourth is."""
    text = "run exempt ending=finished\nn1 submit n1:1 at=10\nn1 submit n1:2 at=1\n"
    text += "n1 submit n1:3 at=20\nn1 submit n1:4 at=30\nn1 submit n1:5 at=40\nn2 join at=5\n"
    text += "n2 deliver n1:1 at=50\nn2 deliver n1:3 at=60\n"
    trace = parse_history(text)
    assert compare(trace, "one left out").judge("causal").answer is Answer.HOLDS
    trace = parse_history(text + "n2 deliver n1:5 at=70\n")
    assert compare(trace, "two left out").judge("causal").answer is Answer.BROKEN


def test_what_was_given_up_decides_whom_agreement_names() -> None:
    """n1 and n2 lack the same events. n1 gave up one that nobody delivered, so it is looked at by
    itself, and first; it is not connected with n3."""
    text = "run given-up ending=finished\nn0 join\nn1 join\nn2 join\nn3 join\nn4 join\n"
    text += "n0 lose n3:8\nn0 crash\nn1 suspect peer=n3\nn3 submit n3:1\n"
    text += "".join(f"n{number} deliver n3:1\n" for number in range(1, 5))
    text += "n3 submit n3:2\nn3 deliver n3:2\nn4 submit n4:1\nn4 deliver n4:1\n"
    vectors = compare(parse_history(text + "n1 lose n3:9\n"), "given up")
    assert "n1, which stayed" in vectors.judge("agreement").why
    vectors = compare(parse_history(text), "not given up")
    assert "n2, which stayed" in vectors.judge("agreement").why


def test_of_a_large_broken_run_little_is_judged_again() -> None:
    trace = sound(4, size=600, faults=False)
    rows = list(trace.rows)
    places = [at for at, row in enumerate(rows) if row.kind == "deliver"]
    rows.append(rows[places[-1]])
    vectors = compare(Trace(trace.header, renumbered(rows)), "doubled")
    cut = vectors.cut("no-duplication")
    assert cut is not None
    assert len(cut) == 2
    rows = [row for at, row in enumerate(rows[:-1]) if at != places[len(places) // 2]]
    vectors = compare(Trace(trace.header, renumbered(rows)), "dropped")
    cut = vectors.cut("agreement")
    assert cut is not None
    assert len(cut) < len(rows) / 4


def test_families_of_their_own_groups() -> None:
    for seed in range(40):
        trace = spoilt(3 * seed + 2)
        groups = [{"name": f"g{n}", "family": ["causal", "feed", "total"][n]} for n in range(3)]
        mixed = with_header(trace, parameters={"group": groups})
        assert judge_columns(columns_of(mixed)) == check(mixed), seed
        assert judge_columns(columns_of(trace)) == check(trace), seed


def test_what_was_not_traced_is_unknown() -> None:
    compare(with_header(sound(1), level=Level.OFF), "off")
    compare(Trace(Header("nothing", ending=Ending.FINISHED), []), "empty")


# --- files ---


def lake_of_one(tmp_path: Path, seed: int = 3) -> tuple[Path, Trace]:
    trace = sound(seed)
    write_trace(tmp_path, trace)
    return run_folder(tmp_path, trace.header.run), trace


def test_a_file_is_read_as_the_plain_reader_reads_it(tmp_path: Path) -> None:
    folder, trace = lake_of_one(tmp_path)
    run = read_columns(folder)
    assert run.count == count_rows(folder) == len(trace.rows)
    assert run.header == trace.header
    rows = run.rows(np.arange(run.count))
    assert sorted(rows, key=trace.rows.index) == trace.rows
    assert judge(folder, None).verdicts == check(trace)
    some = run.rows(np.array([3, 1]))
    assert len(some) == 2
    assert set(some) < set(trace.rows)


def rewritten(folder: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    part = next(folder.glob("part-*.parquet"))
    pq.write_table(change(pq.read_table(part, partitioning=None)), part)


def as_type(name: str, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(name)
        return table.set_column(at, name, table.column(name).cast(kind))

    return change


def with_value(name: str, value: Any) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        at, column = table.schema.get_field_index(name), table.column(name)
        values = [value, *column.to_pylist()[1:]]
        field = pa.field(name, column.type)
        return table.set_column(at, field, pa.array(values, column.type))

    return change


def twice_the_first_row(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(0, 1), table])


FOREIGN: dict[str, Callable[[pa.Table], pa.Table]] = {
    "large strings": as_type("process", pa.large_string()),
    "views of strings": as_type("origin", pa.string_view()),
    "dictionaries": lambda table: as_type("kind", pa.dictionary(pa.int8(), pa.string()))(table),
    "wide integers": as_type("incarnation", pa.int64()),
    "unsigned integers": as_type("step", pa.uint64()),
    "large lists": as_type("members", pa.large_list(pa.large_string())),
    "no hops": lambda table: table.drop_columns(["hops"]),
    "no run": lambda table: table.drop_columns(["run"]),
    "a column of its own": lambda table: table.append_column("extra", table.column("at")),
    "backwards": lambda table: table.take(pa.array(range(len(table) - 1, -1, -1))),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_others_write_is_read(tmp_path: Path, name: str) -> None:
    folder, trace = lake_of_one(tmp_path)
    rewritten(folder, FOREIGN[name])
    assert judge(folder, ALL).verdicts == check(read_run(folder), ALL) == check(trace, ALL)


def cut_off(folder: Path) -> None:
    part = next(folder.glob("part-*.parquet"))
    part.write_bytes(part.read_bytes()[:-9])


def begin_wrongly(folder: Path) -> None:
    part = next(folder.glob("part-*.parquet"))
    part.write_bytes(b"XXXX" + part.read_bytes()[4:])


def flip_a_byte(folder: Path) -> None:
    part = next(folder.glob("part-*.parquet"))
    data = bytearray(part.read_bytes())
    data[len(data) // 4] ^= 255
    part.write_bytes(bytes(data))


def header_of_another(folder: Path) -> None:
    header = folder / "run.json"
    header.write_text(header.read_text().replace("sound", "unsound"), encoding="utf-8")


DAMAGE: dict[str, Callable[[Path], None]] = {
    "cut off": cut_off,
    "begins wrongly": begin_wrongly,
    "flipped": flip_a_byte,
    "header": header_of_another,
    "no parts": lambda folder: next(folder.glob("part-*.parquet")).unlink(),
    "float": lambda folder: rewritten(folder, as_type("at", pa.float64())),
    "kind": lambda folder: rewritten(folder, with_value("kind", "dance")),
    "run": lambda folder: rewritten(folder, with_value("run", "other")),
    "no step": lambda folder: rewritten(folder, with_value("step", None)),
    "column": lambda folder: rewritten(folder, lambda table: table.drop_columns(["kind"])),
    "entry": lambda folder: rewritten(folder, with_value("members", [None])),
    "step twice": lambda folder: rewritten(folder, twice_the_first_row),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_damaged_is_refused_in_the_same_words(tmp_path: Path, name: str) -> None:
    folder, _ = lake_of_one(tmp_path)
    DAMAGE[name](folder)
    with pytest.raises(TraceError) as plain:
        read_run(folder)
    assert judge(folder, ALL).error == str(plain.value)


def test_too_many_rows_are_refused(tmp_path: Path) -> None:
    folder, trace = lake_of_one(tmp_path)
    with pytest.raises(TraceError, match="more than the 5 that are read"):
        read_columns(folder, 5)
    assert read_columns(folder, len(trace.rows)).count == len(trace.rows)


def test_the_contract_is_the_one_that_is_read() -> None:
    """A new column or kind has to be thought of here too."""
    schema = arrow_schema(load_pyarrow())
    assert set(schema.names) == {"run", *COLUMNS}
    assert len(KINDS) == 18
