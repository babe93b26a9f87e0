"""What one incarnation of a process wrote, or several that had the same data folder."""

from __future__ import annotations

from ordercast.check.given_up import GivenUp
from ordercast.trace.schema import Row

EMPTY = "empty"
"""The cause of the start row of a process that begins with another data folder."""


class Log:
    """What one incarnation, or several as one process history, wrote in local order.

    `submitted`, `views` and `losses` remember how many deliveries came before each entry.
    """

    __slots__ = (
        "_given_up",
        "began",
        "crash",
        "delivered",
        "deliveries",
        "first_view",
        "given_state",
        "gone",
        "incarnation",
        "left",
        "losses",
        "lost",
        "process",
        "rows",
        "start",
        "stop",
        "submitted",
        "tickets",
        "views",
    )

    def __init__(self, process: str, incarnation: int, rows: list[Row]) -> None:
        self.process = process
        self.incarnation = incarnation
        self.rows = rows
        self.delivered: list[int] = []
        self.deliveries: list[Row] = []  # the row of each entry of `delivered`
        self.submitted: list[tuple[int, int]] = []  # (deliveries before, event)
        self.views: list[tuple[int, Row]] = []  # (deliveries before, row)
        self.lost: list[int] = []  # without those of ranges that are not their last
        self.losses: list[tuple[int, Row]] = []  # (deliveries before, row)
        self._given_up: GivenUp | None = None
        self.tickets: list[Row] = []
        self.began: dict[str, Row] = {}  # group: its first join or view row, or the state given
        self.first_view: dict[str, Row] = {}
        self.left: set[str] = set()  # groups with a leave row
        self.given_state: set[str] = set()  # groups of which it got the state when it joined
        self.gone: set[str] = set()  # groups that were left after the last view of them
        self.start: Row | None = None
        self.crash: Row | None = None
        self.stop: Row | None = None

    @property
    def given_up(self) -> GivenUp:
        """What it gave up, once all rows are read."""
        if self._given_up is None:
            self._given_up = GivenUp(self.losses)
        return self._given_up

    @property
    def began_empty(self) -> bool:
        """Whether it began with another data folder than the incarnations before it."""
        return self.start is not None and self.start.cause == EMPTY


def joined(logs: list[Log]) -> Log:
    """All incarnations of a process as one process history."""
    if len(logs) == 1:
        return logs[0]
    whole = Log(logs[0].process, logs[0].incarnation, [])
    for log in logs:
        before = len(whole.delivered)
        whole.rows += log.rows
        whole.submitted += [(before + place, event) for place, event in log.submitted]
        whole.delivered += log.delivered
        whole.deliveries += log.deliveries
        whole.lost += log.lost
        whole.losses += [(before + place, row) for place, row in log.losses]
        whole.began = log.began | whole.began  # the earlier incarnation's row stays
    return whole
