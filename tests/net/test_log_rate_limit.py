"""The limit on log lines: never more than so many in a period, and none forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.net.nodes import Cluster, live, until

from ordercast.net.log_rate_limit import LogRateLimit
from ordercast.units import SECOND


def test_fifty_lines_in_ten_seconds_are_logged_and_the_others_counted() -> None:
    limit = LogRateLimit()
    said = [limit.allows(now * SECOND // 100) for now in range(200)]
    assert said == [True] * 50 + [False] * 150
    assert limit.suppressed(10 * SECOND - 1) == 0, "the period is not over"
    assert limit.suppressed(10 * SECOND) == 150
    assert limit.suppressed(10 * SECOND) == 0, "told once"
    assert limit.allows(10 * SECOND)


def test_closing_logs_the_count_of_suppressed_lines() -> None:
    limit = LogRateLimit(most=1)
    assert limit.suppressed(0, ending=True) == 0
    assert [limit.allows(0) for _ in range(3)] == [True, False, False]
    assert limit.suppressed(1, ending=True) == 2


@given(
    st.lists(st.tuples(st.sampled_from(["take", "take", "unsaid"]), st.integers(0, 4))),
    st.integers(1, 3),
)
def test_every_line_is_logged_or_counted(calls: list[tuple[str, int]], most: int) -> None:
    limit, now, told, said = LogRateLimit(most, period=10), 0, 0, []
    for call, later in calls:
        now += later
        if call == "unsaid":
            told += limit.suppressed(now)
        elif limit.allows(now):
            said.append(now)
    asked = sum(call == "take" for call, _ in calls)
    assert len(said) + told + limit.suppressed(now, ending=True) == asked
    for first, last in zip(said, said[most:], strict=False):
        assert last - first > 0, "not even at once"
    # A period begins with its first line: two of them meet in no more than one of their length.
    assert all(sum(at <= each < at + 10 for each in said) <= 2 * most for at in range(now + 1))


@live
async def test_garbage_does_not_flood_the_log_but_is_counted(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    node.mesh.accept_limiter.a_second = 1000
    for _ in range(80):
        caller = await cluster.dial(node)
        caller.write(b"GET / HTTP/1.1\r\n\r\n")
        await caller.refusal()
    await until(lambda: node.mesh.counters["refused_frames"] == 80)
    refusals = [line for line in cluster.log.messages if "refusing 127.0.0.1" in line]
    assert len(refusals) == 50
    await node.mesh.close()
    assert cluster.log.messages[50:] == ["30 more refusals like these were counted, but not logged"]


@live
async def test_text_of_a_peer_cannot_break_a_log_line(cluster: Cluster) -> None:
    node = await cluster.open("n1")
    node.mesh.incidents.warn("%s refused us: %s", "n2", "so\nordercast.net: all is \x1b[1mwell")
    assert cluster.log.messages == ["n2 refused us: so?ordercast.net: all is ?[1mwell"]
