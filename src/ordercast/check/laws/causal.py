"""causal: optimistic-causal, and nothing in the causal past of a delivered event is missing.

All that precedes a delivered event was delivered before it in the same process history. Exempt is
what was submitted, by the column `at`, before the process's first join or view row in the group, or
before it was given the state (a join row with this cause); without such a row nothing is. In
durable families, what the process history gave up before is exempt too. An own submission counts as
delivered only once it is delivered. How it is judged, and when it is unknown: causality.py.

Witness: the rows that show that the one event precedes the other, and the deliveries.
"""

from __future__ import annotations

from ordercast.check.causality import judge_causality
from ordercast.check.law import EVENTS, Implication, Law, Proof

NAME = "causal"

LAW = Law(
    name=NAME,
    says=(
        "optimistic-causal, and nothing in the causal past of a delivered event is missing "
        "from the deliveries before it, from the process's first view or join on"
    ),
    remark=(
        "basic events may come late or be missing; in durable families also what the process gave "
        "up before"
    ),
    unknown_when="the submission of a delivered event is missing",
    reads=(*EVENTS, "join", "view", "lose"),
    judge=lambda history: judge_causality(NAME, history, gaps_allowed=False),
    shows_absence=True,
    select=lambda run: run.causal_breaks(gaps=True),
    prove=Proof(
        lambda slices: slices.created and slices.in_causal_order and slices.without_gaps,
        needs=("pasts",),
    ),
    implies=(
        Implication(
            "optimistic-causal",
            because="it asks the same, and that nothing is missing",
            source="cluster consistency, section 5: optimistic causal order may skip events",
        ),
    ),
    place=70,
)
