"""`ordercast demo` tells a true story, and the same one every time."""

from __future__ import annotations


def test_the_demo_tells_of_the_crash_the_cut_and_the_laws(ordercast) -> None:
    ran = ordercast("demo")
    assert ran.code == 0
    for part in (
        "n4 crashes",
        "n4 starts again, as incarnation 1",
        "views: {n1 n2}, {n3 n4 n5}",
        "✓ completeness",
        "And if there were a bug?",
        "agreement is broken",
    ):
        assert part in ran.out, part
    assert ran.err == ""
    assert ordercast("demo").out == ran.out


def test_another_seed_is_another_run_of_the_story(ordercast) -> None:
    first, second = ordercast("demo"), ordercast("demo", "--seed", 2)
    assert second.code == 0
    assert first.out != second.out


def test_the_version_is_told(ordercast) -> None:
    assert ordercast("--version").out.startswith("ordercast 0.")
