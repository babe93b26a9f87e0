"""How far an epoch has come (`epoch.py`)."""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """How far an epoch has come.

    | phase          | a state arrives | the state is delivered | the initiator is excluded |
    |----------------|-----------------|------------------------|---------------------------|
    | AWAITING_STATE | STATE_QUEUED *  | -                      | FAILED                    |
    | STATE_QUEUED   | ignored         | BEGUN                  | FAILED                    |
    | FAILED         | ignored         | ignored *              | ignored                   |
    | BEGUN          | ignored         | -                      | ignored                   |

    * on arrival: FAILED if its number is not above our own start, for then its initiator did not
    wait for us. On delivery: its number is above the cut that excluded its initiator. If it were
    used, members that wait for another group between the two numbers would fail, and others begin.
    """

    AWAITING_STATE = "awaiting state"
    STATE_QUEUED = "state queued"
    BEGUN = "begun"  # the application has the state and the first view
    FAILED = "failed"  # nobody can provide the state any more
