"""What `check` asks, and when a law does not know."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ordercast.check import laws
from ordercast.check.history import PROMISES
from ordercast.check.implications import with_implied
from ordercast.check.laws import LAWS, check, judge_run
from ordercast.check.verdict import Answer, Verdict
from ordercast.errors import UsageError
from ordercast.kernel.family import Promises
from ordercast.trace.schema import Ending, Header, Row, Trace, TraceLevel
from ordercast.trace.text import parse_history

CALM = """
run calm family={family} ending=finished
n1 join
n2 join
n1 submit n1:1
n1 deliver n1:1
n2 deliver n1:1
"""


def judge(law: str, text: str) -> Verdict:
    return check(parse_history(text), [law])[0]


def asked(text: str) -> list[str]:
    return [verdict.law for verdict in check(parse_history(text))]


def change(trace: Trace, at: int, **columns: object) -> Trace:
    rows = list(trace.rows)
    rows[at] = msgspec.structs.replace(rows[at], **columns)
    return Trace(trace.header, rows)


# --- which laws ---


def test_every_file_of_the_folder_is_a_law_of_its_name() -> None:
    files = Path(laws.__file__).parent.glob("[a-z]*.py")
    assert {path.stem.replace("_", "-") for path in files} == set(LAWS)
    assert all(law.name == name and law.says for name, law in LAWS.items())


def everything(promise: Promises) -> set[str]:
    """What a family promises while nothing fails, and what follows from that for a run without
    views, whose header says nothing."""
    promised = promise.laws + promise.when_nothing_fails
    follow = with_implied(promised, LAWS.values())
    asked = {*promised, *(name for name in follow if "view" not in LAWS[name].reads)}
    return {name for name in asked if not LAWS[name].parameters}


def test_an_implied_law_is_judged_where_the_run_has_rows_for_it() -> None:
    calm = CALM.format(family="total")
    assert "total-in-view" not in asked(calm)
    assert "total-in-view" in asked(calm + "n1 view 1 {n1}\n")


@pytest.mark.parametrize("family", list(PROMISES))
def test_a_run_is_judged_by_what_its_family_promises(family: str) -> None:
    promise = PROMISES[family]
    assert set(asked(CALM.format(family=family))) == everything(promise)


def test_the_family_of_the_only_group_counts_not_that_of_the_run() -> None:
    trace = parse_history(CALM.format(family="fifo"))
    groups = {"group": [{"name": "g", "family": "sequenced"}]}
    header = msgspec.structs.replace(trace.header, parameters=groups)
    promise = PROMISES["sequenced"]
    laws = [verdict.law for verdict in check(Trace(header, trace.rows))]
    assert set(laws) == everything(promise)


@pytest.mark.parametrize(
    "failure", ["n1 crash", "n1 leave", "n1 suspect peer=n2", "n1 lose n1:1", "n2#1 start"]
)
def test_laws_promised_only_without_faults_are_not_judged_after_a_fault(failure: str) -> None:
    laws = asked(CALM.format(family="causal") + failure)
    assert set(laws) == set(PROMISES["causal"].laws)


@pytest.mark.parametrize("family", ["-", "of-another-system"])
def test_a_run_of_no_known_family_is_judged_by_all_laws(family: str) -> None:
    unasked = ("rest", "durable", "no-silent-gap")  # these need a parameter, or a promise
    assert asked(CALM.format(family=family)) == [name for name in LAWS if name not in unasked]


def test_a_promised_law_that_does_not_exist_is_unknown_and_not_skipped() -> None:
    promises = {"fifo": Promises(("fifo", "no-thirteen"), source="a test")}
    verdicts = check(parse_history(CALM.format(family="fifo")), promises=promises)
    assert [(one.law, one.answer) for one in verdicts] == [
        ("fifo", Answer.HOLDS),
        ("no-thirteen", Answer.UNKNOWN),
    ]
    assert "the checker does not have it" in verdicts[1].why


def test_laws_may_be_chosen() -> None:
    verdicts = check(parse_history(CALM.format(family="fifo")), ["total", "fifo", "total"])
    assert [verdict.law for verdict in verdicts] == ["total", "fifo"]


def test_an_unknown_law_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="unknown law 'casual': did you mean 'causal'"):
        check(parse_history(CALM.format(family="fifo")), ["fifo", "casual"])


def test_a_trace_is_left_as_it_was() -> None:
    trace = parse_history(CALM.format(family="total"))
    rows = trace.rows[::-1]
    check(Trace(trace.header, rows))
    assert rows == trace.rows[::-1]


# --- a run that did not finish ---


@pytest.mark.parametrize("ending", [Ending.CUT, Ending.FAILED])
@pytest.mark.parametrize("law", ["agreement", "completeness", "disjoint-views"])
def test_a_truncated_run_leaves_missing_deliveries_unknown(law: str, ending: Ending) -> None:
    verdict = judge(law, f"run short ending={ending}\nn1 join\nn2 join\nn1 submit n1:1")
    assert verdict.answer is Answer.UNKNOWN
    assert f"the run is {ending}" in verdict.why


def test_a_truncated_run_may_have_lost_the_row_of_a_submission() -> None:
    text = "run short ending=cut\nn2 deliver n1:1\nn1 start"
    assert judge("no-creation", text).answer is Answer.UNKNOWN
    assert judge("no-creation", text + "\nn1 submit n1:1").answer is Answer.HOLDS
    assert judge("no-creation", text + "\nn1#1 submit n1#1:1").answer is Answer.UNKNOWN


def test_a_truncated_run_has_not_lost_a_submission_before_later_rows_of_its_origin() -> None:
    text = "run short ending=cut\nn2 deliver n1:1\nn1 submit n1:2"
    assert judge("no-creation", text).answer is Answer.BROKEN


def test_a_truncated_run_leaves_missing_views_unknown() -> None:
    text = "run short ending=cut\nn1 view 1 n1,n2\nn2 view 1 n1,n2\nn1 view 2 n1,n2"
    assert judge("view-agreement", text).answer is Answer.UNKNOWN
    assert judge("view-agreement", text + "\nn2 view 3 n1,n2").answer is Answer.BROKEN
    assert judge("view-agreement", text + "\nn2 view 2 n1,n2").answer is Answer.HOLDS


# --- rows that break the contract ---


def test_a_row_of_an_unknown_kind_makes_every_law_unknown() -> None:
    trace = change(parse_history(CALM.format(family="fifo")), 1, kind="jion")
    for verdict in check(trace, list(LAWS)):
        assert verdict.answer is Answer.UNKNOWN
        assert verdict.why == "step 1 of n2, kind jion, has the unknown kind `jion`"


def test_two_rows_with_one_step_make_every_law_unknown() -> None:
    trace = change(parse_history(CALM.format(family="fifo")), 4, step=1)
    for verdict in check(trace, list(LAWS)):
        assert verdict.answer is Answer.UNKNOWN
        assert verdict.why == "n2 wrote two rows as step 1"


def test_steps_may_have_gaps_and_rows_may_come_in_any_order() -> None:
    trace = change(parse_history(CALM.format(family="fifo")), 4, step=70)
    for verdict in check(Trace(trace.header, trace.rows[::-1])):
        assert verdict.answer is Answer.HOLDS


COMPLETE = """
run complete ending=finished start=0 parameters={"duration":"1s","quiet":"1s"}
n1 start
n1 join
n1 view 1 n1
n1 ticket index=0 cause=acquired
n1 submit n1:1 index=0 stamp=1
n1 deliver n1:1
n1 lose n1:1 cause=obsolete
n1 leave
n1 suspect peer=n2
n1 stop
"""


def test_the_complete_run_keeps_every_law() -> None:
    for verdict in check(parse_history(COMPLETE), list(LAWS)):
        assert verdict.answer is Answer.HOLDS


READ_BY = {
    "submit": "no-creation agreement durable completeness self-delivery reply-order no-silent-gap "
    "optimistic-causal causal causal-in-view safe ticket-uniqueness",
    "deliver": "no-creation no-duplication fifo agreement durable completeness self-delivery safe "
    "reply-order no-silent-gap optimistic-causal causal causal-in-view total total-in-view "
    "virtual-synchrony",
    "join": "agreement durable completeness causal view-agreement disjoint-views rest one-tree",
    "leave": "agreement durable completeness self-delivery safe view-agreement disjoint-views "
    "one-tree",
    "view": "agreement durable completeness causal causal-in-view total-in-view virtual-synchrony "
    "safe view-agreement disjoint-views rest",
    "suspect": "agreement completeness view-agreement rest",
    "lose": "agreement durable completeness causal reply-order no-silent-gap",
    "ticket": "ticket-uniqueness",
}
"""Which laws read rows of a kind, said here once more: the table in the source is under test."""


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("join", "group"),
        ("view", "group"),
        ("view", "view"),
        ("view", "members"),
        ("ticket", "group"),
        ("ticket", "index"),
        ("ticket", "cause"),
        ("submit", "group"),
        ("submit", "origin"),
        ("submit", "number"),
        ("deliver", "group"),
        ("deliver", "origin"),
        ("deliver", "number"),
        ("lose", "number"),
        ("leave", "group"),
        ("suspect", "peer"),
    ],
)
def test_a_missing_column_makes_the_laws_that_read_it_unknown(kind: str, column: str) -> None:
    trace = parse_history(COMPLETE)
    at = next(at for at, row in enumerate(trace.rows) if row.kind == kind)
    for verdict in check(change(trace, at, **{column: None}), list(LAWS)):
        if verdict.law in READ_BY[kind].split():
            assert verdict.answer is Answer.UNKNOWN
            assert f"kind {kind}, has no {column}" in verdict.why
        else:
            assert verdict.answer is Answer.HOLDS


def test_an_event_that_was_submitted_twice_has_an_unknown_causal_past() -> None:
    text = CALM.format(family="fifo") + "n1 submit n1:1"
    assert judge("optimistic-causal", text).why == "n1:1 was submitted twice"
    assert judge("fifo", text).answer is Answer.HOLDS


def test_an_event_without_submission_makes_causality_unknown_unless_it_is_broken() -> None:
    text = "run holes ending=finished\nn1 submit n1:1\nn1 submit n1:2\nn2 deliver n3:1\n"
    assert judge("causal", text).answer is Answer.UNKNOWN
    text += "n2 deliver n1:2\nn2 deliver n1:1"
    assert judge("causal", text).answer is Answer.BROKEN


@pytest.mark.parametrize("law", ["optimistic-causal", "causal"])
def test_events_that_precede_themselves_make_causal_order_unknown(law: str) -> None:
    text = "run circle\nn1 deliver n2:1\nn1 submit n1:1\nn2 deliver n1:1\nn2 submit n2:1"
    assert judge("no-creation", text).answer is Answer.BROKEN
    assert judge(law, text).answer is Answer.UNKNOWN


# --- nothing to judge ---


@pytest.mark.parametrize("law", list(LAWS))
def test_an_empty_finished_run_keeps_every_law(law: str) -> None:
    assert check(Trace(Header("empty", ending=Ending.FINISHED), []), [law])[0].answer == "holds"


@pytest.mark.parametrize("law", list(LAWS))
def test_a_run_that_was_not_traced_leaves_every_law_unknown(law: str) -> None:
    header = Header("silent", ending=Ending.FINISHED, level=TraceLevel.OFF)
    assert check(Trace(header, []), [law])[0].answer is Answer.UNKNOWN


@pytest.mark.parametrize(
    "law", ["total-in-view", "virtual-synchrony", "view-agreement", "disjoint-views"]
)
def test_traffic_without_a_view_row_leaves_laws_about_views_unknown(law: str) -> None:
    assert judge(law, CALM.format(family="fifo")).answer is Answer.UNKNOWN
    assert judge(law, CALM.format(family="fifo") + "n1 view 1 n1").answer is Answer.HOLDS


def test_traffic_without_tickets_or_stamps_leaves_ticket_uniqueness_unknown() -> None:
    law = "ticket-uniqueness"
    tickets = "\nn1 ticket index=0 cause=acquired"
    submit = "run tickets\nn1 submit n1:1 "
    assert judge(law, "run tickets\nn1 join").answer is Answer.HOLDS
    assert judge(law, "run tickets" + tickets).answer is Answer.HOLDS
    assert judge(law, submit).answer is Answer.UNKNOWN
    assert judge(law, submit + "index=0 stamp=1").answer is Answer.UNKNOWN
    assert judge(law, submit + tickets).answer is Answer.UNKNOWN
    assert judge(law, submit + "index=0" + tickets).answer is Answer.UNKNOWN
    assert judge(law, submit + "index=1 stamp=1" + tickets).answer is Answer.UNKNOWN
    assert judge(law, submit + "index=0 stamp=1" + tickets).answer is Answer.HOLDS


def test_a_ticket_row_with_an_unknown_cause_leaves_the_law_unknown() -> None:
    verdict = judge("ticket-uniqueness", "run tickets\nn1 ticket index=0 cause=stolen")
    assert verdict.answer is Answer.UNKNOWN
    assert "has the unknown cause `stolen`" in verdict.why


# --- whom completeness and agreement bind ---

MEMBERS = """
run members ending=finished
n1 {first}
n2 {first}
n1 submit n1:1
n1 deliver n1:1
{then}
"""


@pytest.mark.parametrize("law", ["agreement", "completeness"])
@pytest.mark.parametrize(
    ("first", "then", "bound"),
    [
        ("join", "", True),
        ("view 1 n1,n2", "", True),
        ("start", "", False),  # nothing says that n2 is in the group
        ("start", "n2 submit n2:1\nn1 deliver n2:1", True),
        ("start", "n1 submit n1:2\nn1 deliver n1:2\nn2 deliver n1:2", True),
        ("start", "n2 lose n1:2", True),
        ("start", "n2 join at=3ms", True),  # as n1 submits: no later is early enough
        ("start", "n2 join", False),  # too late
        ("start", "n2 view 1 n1,n2", False),
        ("join", "n2 crash", False),
        ("join", "n2 leave", False),
        ("join", "n2#1 start", False),
        ("join", "n2 suspect peer=n1", False),
        ("join", "n1 suspect peer=n2", False),
        ("join", "n1 suspect peer=n2#0", False),
        ("join", "n1 suspect peer=n3", True),
        ("join", "n1 lose n1:1", True),  # it delivered it all the same
        ("join", "n2 stop", True),
        ("join", "n2 stop\nn1 submit n1:2\nn1 deliver n1:2", False),
        ("view 1 n1,n2", "n1 view 2 n1", False),
        ("view 1 n1,n2", "n2 view 2 n2", False),
        ("view 1 n1,n2", "n2 stop\nn1 view 2 n1", True),
        ("view 1 n1,n2#0", "", True),
    ],
)
def test_a_member_that_was_present_and_stayed_must_have_delivered(
    law: str, first: str, then: str, bound: bool
) -> None:
    verdict = judge(law, MEMBERS.format(first=first, then=then))
    assert verdict.answer is (Answer.BROKEN if bound else Answer.HOLDS)


def test_a_member_of_the_first_view_is_there_from_the_beginning_even_if_it_is_slow() -> None:
    text = "run slow ending=finished\nn1 view 1 n1,n2\nn1 submit n1:1\nn1 deliver n1:1\n"
    assert judge("completeness", text + "n2 view 1 n1,n2").answer is Answer.BROKEN
    assert judge("completeness", text + "n2 view 2 n1,n2").answer is Answer.HOLDS


@pytest.mark.parametrize("law", ["agreement", "completeness"])
def test_a_member_that_was_still_joining_is_not_there_from_the_beginning(law: str) -> None:
    """n2 and n3 join an open group that n1 has founded: each receives from its first view on."""
    text = (
        "run joining ending=finished\nn1 join\nn2 join\nn3 join\nn1 view 1 {first}\n"
        "n1 submit n1:1\nn1 deliver n1:1\nn2 view 1 n1,n2,n3\nn2 deliver n1:1\n"
        "n3 view 1 n1,n2,n3"
    )
    assert judge(law, text.format(first="n1")).answer is Answer.HOLDS
    assert judge(law, text.format(first="n1,n2,n3")).answer is Answer.BROKEN


def test_members_with_the_same_deliveries_are_excused_one_by_one() -> None:
    """n2 is excused, and n3, which has no more and no less, is not; nor does n1 stand for n2."""
    text = "run same ending=finished\nn1 join\nn2 join\nn3 join\nn1 submit n1:1\nn1 deliver n1:1\n"
    assert judge("agreement", text + "n2 suspect peer=n1").answer is Answer.BROKEN
    assert judge("agreement", text + "n2 deliver n1:1\nn3 suspect peer=n1").answer is Answer.BROKEN
    excused = text + "n2 suspect peer=n1\nn3 suspect peer=n1"
    assert judge("agreement", excused).answer is Answer.HOLDS


def test_reporting_an_event_as_lost_excuses_from_agreement_only() -> None:
    text = MEMBERS.format(first="join", then="n2 lose n1:1")
    assert judge("agreement", text).answer is Answer.HOLDS
    assert judge("completeness", text).answer is Answer.BROKEN


@pytest.mark.parametrize(
    ("fate", "owed"),
    [
        ("", True),
        ("n1 leave", True),
        ("n1 stop", True),
        ("n1 crash", False),
        ("n1#1 start", False),
        ("n1 stop\nn2 submit n2:1\nn2 deliver n2:1", False),
    ],
)
def test_completeness_asks_for_the_events_of_senders_that_did_not_fail(
    fate: str, owed: bool
) -> None:
    text = f"run owed ending=finished\nn1 join\nn2 join\nn1 submit n1:1\n{fate}\n"
    assert judge("completeness", text).answer is (Answer.BROKEN if owed else Answer.HOLDS)


def test_views_and_suspicions_that_name_an_incarnation_mean_the_process() -> None:
    text = "run names ending=finished\nn1 view 1 n1#0,n2\nn2 view 1 n1,n2#3\n"
    assert judge("view-agreement", text).answer is Answer.HOLDS
    assert judge("disjoint-views", text + "n3 view 2 n2#1,n3").answer is Answer.BROKEN
    # What stands behind a sharp and is no number belongs to the name.
    text = "run names ending=finished\na%23b view 1 a%23b\na%23c view 2 a%23c\n"
    assert judge("view-agreement", text).answer is Answer.HOLDS
    assert judge("disjoint-views", text).answer is Answer.HOLDS


# --- where causality comes from ---


def test_causality_comes_from_deliveries_and_not_from_stamps() -> None:
    """The stamp claims that n2:1 knows of nothing; the rows show that it follows n1:1."""
    text = """
    run wrong-stamp
    n1 submit n1:1 index=0 stamp=1,0
    n2 deliver n1:1
    n2 submit n2:1 index=1 stamp=0,1
    n3 deliver n2:1
    n3 deliver n1:1
    """
    assert judge("optimistic-causal", text).answer is Answer.BROKEN


LIVES = """
run lives family={family}
n1 submit n1:1
n2 deliver n1:1
n2 crash
n2#1 start
n2#1 submit n2#1:1
n3 deliver n2#1:1
n3 deliver n1:1
"""


def test_a_restarted_member_may_deliver_again_unless_the_family_is_durable() -> None:
    durable, forgetful = LIVES.format(family="feed"), LIVES.format(family="causal")
    assert judge("optimistic-causal", durable).answer is Answer.BROKEN
    assert judge("optimistic-causal", forgetful).answer is Answer.HOLDS


def test_a_member_may_miss_events_from_before_it_joined() -> None:
    text = "run late\nn1 submit n1:1\n{}\nn1 submit n1:2\nn2 deliver n1:2"
    assert judge("causal", text.format("n2 join")).answer is Answer.HOLDS
    assert judge("causal", text.format("n2 view 1 n1,n2")).answer is Answer.HOLDS
    assert judge("causal", text.format("n2 join at=1ms")).answer is Answer.BROKEN, "not before"
    assert judge("causal", text.format("n2 join group=h")).answer is Answer.BROKEN
    assert judge("causal", text.format("n2 start")).answer is Answer.BROKEN


def test_rows_may_be_checked_without_a_file() -> None:
    rows = [
        Row("a", 0, 1, 10, "submit", group="g", origin="a", number=1),
        Row("b", 0, 1, 20, "deliver", group="g", origin="a", number=1),
    ]
    trace = Trace(Header("mine", family="gossip"), rows)
    assert [verdict.answer for verdict in check(trace)] == [Answer.HOLDS, Answer.HOLDS]


# --- numbers of incarnations ------------------------------------------------------------------

DRAWN = """
run drawn family={family} ending=finished
n1#7 join
n2#900000 join
n1#7 view 1 n1,n2
n2#900000 view 1 n1,n2
n1#7 submit n1#7:1
n1#7 deliver n1#7:1
"""


def test_a_run_of_drawn_incarnations_is_calm_if_each_process_has_only_one() -> None:
    drawn = DRAWN.format(family="causal")
    assert judge_run(parse_history(drawn)).not_asked == []
    (restarted,) = judge_run(parse_history(drawn + "n2#900001 join")).not_asked
    assert restarted.why == "n2 restarted"


@pytest.mark.parametrize(
    ("law", "more"),
    [("completeness", ""), ("agreement", ""), ("view-agreement", "n2#900000 view 2 n1,n2\n")],
)
def test_laws_about_absence_judge_the_only_incarnation_whatever_its_number(
    law: str, more: str
) -> None:
    drawn = DRAWN.format(family="fifo") + more
    other = "n2#900001 deliver n1#7:1\nn2#900001 stop\n"
    assert judge(law, drawn).answer is Answer.BROKEN
    assert judge(law, drawn + other).answer is Answer.HOLDS, "it is excused"
