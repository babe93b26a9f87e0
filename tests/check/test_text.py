"""The tiny history language: what it reads, what it writes, and how it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.errors import TraceError
from ordercast.trace.schema import COLUMNS, KINDS, Ending, Header, Row, Trace, TraceLevel
from ordercast.trace.text import event_name, format_history, parse_history
from ordercast.types import event_number

MS = 1_000_000


def rows_of(*lines: str) -> list[Row]:
    return parse_history("\n".join(["run r", *lines])).rows


def row_of(line: str) -> Row:
    return rows_of(line)[0]


# --- reading ---


def test_a_whole_history() -> None:
    trace = parse_history(
        """
        # Two members, one message.
        run small family=total ending=finished seed=7 start=0 end=2s level=wire

        n1 submit n1:1 count=20       # a batch
        n2 deliver n1:1 hops=1
        n2 view 7 n1,n2
        """
    )
    assert trace.header == Header(
        "small",
        family="total",
        seed=7,
        level=TraceLevel.WIRE,
        start=0,
        end=2000 * MS,
        ending=Ending.FINISHED,
    )
    assert trace.rows == [
        Row("n1", 0, 1, 1 * MS, "submit", group="g", origin="n1", number=1, count=20),
        Row("n2", 0, 1, 2 * MS, "deliver", group="g", origin="n1", number=1, hops=1),
        Row("n2", 0, 2, 3 * MS, "view", group="g", view=7, members=("n1", "n2")),
    ]


def test_an_ending_that_is_not_written_is_the_default() -> None:
    assert parse_history("run r").header == Header("r")


def test_a_later_incarnation_has_its_own_steps_and_numbers() -> None:
    first, second = rows_of("n1 start", "n1#2 submit n1#2:3")
    assert (second.process, second.incarnation, second.step) == ("n1", 2, 1)
    assert second.number == event_number(2, 3)
    assert first.step == 1


def test_a_sharp_inside_a_word_is_no_comment() -> None:
    assert [row.incarnation for row in rows_of("#1 start", "n1#1 start # n1#2 start")] == [1]


def test_time_goes_on_from_the_row_above() -> None:
    rows = rows_of("n1 start", "n1 stop at=1s", "n2 start", "n2 stop at=5")
    assert [row.at for row in rows] == [1 * MS, 1000 * MS, 1001 * MS, 5]


def test_steps_go_on_from_the_step_before() -> None:
    assert [row.step for row in rows_of("n1 start", "n1 stop step=8", "n1 crash")] == [1, 8, 9]


@pytest.mark.parametrize(
    ("line", "columns"),
    [
        ("n3 crash", {}),
        ("n1 suspect peer=n2", {"peer": "n2"}),
        ("n1 suspect peer=n2 group=g", {"peer": "n2", "group": "g"}),
        ("n1 join", {"group": "g"}),
        ("n1 join group=world/7", {"group": "world/7"}),
        ("n1 join group=two%20words", {"group": "two words"}),
        ("n1 join group=-", {}),
        ("n1 deliver -", {"group": "g"}),
        ("n1 deliver origin=n2", {"group": "g", "origin": "n2"}),
        ("n1 view 7 -", {"group": "g", "view": 7}),
        ("n1 view 7 members=", {"group": "g", "view": 7, "members": ()}),
        ("n1 blocked cause=window", {"cause": "window"}),
        ("n1 parent peer=n2#0", {"group": "g", "peer": "n2#0"}),
        ("n2 lose n1:5 after=2", {"group": "g", "origin": "n1", "number": 5, "after": 2}),
        ("n1 start reply=n2#1:3", {"reply_origin": "n2", "reply_number": event_number(1, 3)}),
        ("n1 start reply=-", {}),
        ("n1 send peer=n2 message=Data size=9", {"peer": "n2", "message": "Data", "size": 9}),
        (
            "n1 ticket index=3 cause=acquired until=5000",
            {"group": "g", "index": 3, "cause": "acquired", "until": 5000},
        ),
        (
            "n1 submit n1:1 index=0 stamp=1,0 order=4",
            {"group": "g", "origin": "n1", "number": 1, "index": 0, "stamp": (1, 0), "order": 4},
        ),
    ],
)
def test_values_of_a_row_go_to_their_columns(line: str, columns: dict[str, object]) -> None:
    row = row_of(line)
    said = {name: getattr(row, name) for name in COLUMNS[5:]}
    assert {name: value for name, value in said.items() if value is not None} == columns


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "<text>: empty; a history begins with a line `run NAME`"),
        ("n1 start", ":1: expected `run NAME`, got `n1 start`"),
        ("run", ":1: expected `run NAME`"),
        ("run r famly=total", ":1: unknown key 'famly': did you mean 'family'"),
        ("run r ending=finnished", ":1: unknown ending 'finnished': did you mean 'finished'"),
        ("run r\n\nn1 delivers n1:1", ":3: unknown kind 'delivers': did you mean 'deliver'"),
        ("run r\nn1", ":2: expected a kind after `n1`"),
        ("run r\nn1#x start", ":2: expected a process such as `n1` or `n1#2`, got `n1#x`"),
        ("run r\nn1 deliver", ":2: `deliver` needs an event such as `n1:1`"),
        ("run r\nn1 deliver n1", ":2: expected an event such as `n1:1` or `n1#2:1`, got `n1`"),
        ("run r\nn1 deliver n1:1 n1:2", ":2: expected key=value, got `n1:2`"),
        ("run r\nn1 deliver n1:9999999999999", ":2: the counter of `n1:9999999999999`"),
        ("run r\nn1 deliver n1:1 grup=h", ":2: unknown key 'grup': did you mean 'group'"),
        ("run r\nn1 deliver n1:1 group=h g", ":2: expected key=value, got `g`"),
        ("run r\nn1 deliver n1:1 size=1 size=2", ":2: `size` is given twice"),
        ("run r\nn1 deliver n1:1 size=big", ":2: size: expected a whole number such as 5"),
        ("run r\nn1 deliver n1:1 size=5ms", ":2: size: expected a whole number such as 5"),
        ("run r\nn1 start reply=n2", ":2: expected an event such as `n1:1` or `n1#2:1`, got `n2`"),
        ("run r\nn1 start reply=n2:1 reply_number=1", "`reply_number` is given twice"),
        ("run r\nn1 stop at=soon", ":2: at: expected a whole number such as 5, 5ms or 5s"),
        ("run r\nn1 crash n2", ":2: `crash` takes only key=value, got `n2`"),
        ("run r\nn1 view", ":2: `view` needs an identity and members"),
        ("run r\nn1 view 7", ":2: `view` needs members after its identity"),
        ("run r\nn1 view seven n1", ":2: view: expected a whole number such as 5"),
        ("run r\nn1 view 7 n1 n2", ":2: expected key=value, got `n2`"),
    ],
)
def test_a_mistake_is_reported_with_its_line(text: str, complaint: str) -> None:
    with pytest.raises(TraceError) as caught:
        parse_history(text)
    assert complaint in str(caught.value)


def test_the_source_is_named() -> None:
    with pytest.raises(TraceError, match=r"^spoilt\.history:2: unknown kind"):
        parse_history("run r\nn1 sumbit n1:1", "spoilt.history")


# --- writing ---


def test_defaults_are_left_unsaid() -> None:
    text = "run r family=fifo ending=cut\nn1 submit n1:1\nn2#1 deliver n1:1 reply=n3#1:2\n"
    text += "n2 view 7 n1,n2\nn2 parent peer=n1#0\n"
    assert format_history(parse_history(text)) == text


def test_a_value_that_has_no_spelling_is_rejected() -> None:
    with pytest.raises(TraceError, match="without a name"):
        format_history(Trace(Header("r"), [Row("", 0, 1, 1, "start")]))
    with pytest.raises(TraceError, match="parameters cannot be written"):
        format_history(Trace(Header("r", parameters={"x": object()}), []))


def test_events_have_short_names() -> None:
    assert event_name("n1", 3) == "n1:3"
    assert event_name("n1", event_number(2, 3)) == "n1#2:3"


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6) | st.sampled_from(
    ["n1", "n2", "-", "a#1", "x:y", "k=v", "a,b", "two words", "%41", "#"]
)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
OPTIONAL = {
    "group": NAMES | st.sampled_from(["g", ""]),
    "origin": NAMES,
    "number": NUMBERS | st.integers(0, 5),
    "index": NUMBERS,
    "stamp": st.lists(NUMBERS, max_size=3).map(tuple),
    "order": NUMBERS,
    "view": NUMBERS,
    "members": st.lists(NAMES, max_size=3).map(tuple),
    "peer": NAMES,
    "message": NAMES,
    "size": NUMBERS,
    "count": NUMBERS,
    "hops": NUMBERS,
    "until": NUMBERS | st.integers(-3, 3).map(lambda n: n * MS),
    "cause": NAMES | st.just(""),
    "reply_origin": NAMES | st.just(""),
    "reply_number": NUMBERS | st.integers(0, 5),
    "after": NUMBERS,
}
ROWS = st.builds(
    Row,
    process=NAMES,
    incarnation=st.integers(0, 3),
    step=NUMBERS | st.integers(1, 3),
    at=NUMBERS | st.integers(0, 5).map(lambda n: n * MS),
    kind=st.sampled_from(sorted(KINDS)),
    **{name: st.none() | values for name, values in OPTIONAL.items()},
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
HEADERS = st.builds(
    Header,
    run=NAMES,
    family=st.none() | NAMES,
    parameters=st.dictionaries(NAMES, JSON, max_size=3),
    seed=st.none() | NUMBERS,
    version=st.none() | NAMES,
    schema_version=st.integers(0, 9),
    level=st.sampled_from(TraceLevel),
    start=st.none() | NUMBERS,
    end=st.none() | NUMBERS,
    ending=st.sampled_from(Ending),
)


@given(st.builds(Trace, HEADERS, st.lists(ROWS, max_size=5)))
def test_a_written_history_reads_back_the_same(trace: Trace) -> None:
    assert parse_history(format_history(trace)) == trace
