"""Where posts stand on a page, which are left out, and that a page always shows what it should."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.board.repeated import RepeatedPage

from ordercast import Gap
from ordercast.board.keys import key_of_post
from ordercast.board.missing import SHOWN_GAPS, LostPosts
from ordercast.board.threads import PageStep, ShownPost, Threads
from ordercast.kernel.log import Reference
from ordercast.types import event_number


def post(key: str, answers: str = "") -> ShownPost:
    return ShownPost(key, "n1", 0, "ann", "text", answers=answers)


def add(threads: Threads, *posts: str) -> list[PageStep]:
    """`b<a`: b is a reply to a. Posts whose names begin with an x are lost."""
    steps = []
    for each in posts:
        key, _, answers = each.partition("<")
        steps.append(threads.add(post(key, answers), lambda lost: lost.startswith("x")))
    return steps


def placed(threads: Threads) -> list[str]:
    return [f"{each.key}<{each.below}" for each in threads]


def test_replies_stand_below_their_originals() -> None:
    threads = Threads()
    add(threads, "a", "b", "c<a", "d<c", "e<a")
    assert placed(threads) == ["b<", "a<", "c<a", "d<c", "e<a"]
    assert len(threads) == 2


def test_the_thread_with_the_oldest_newest_post_is_left_out() -> None:
    threads = Threads(threads=2)
    *_, last = add(threads, "a", "b", "c<a", "d")
    assert last.threads_out == ("b",)
    assert placed(threads) == ["a<", "c<a", "d<"]
    assert threads.hidden_threads == 1


def test_a_reply_to_what_is_not_shown_says_so() -> None:
    threads = Threads(threads=1)
    steps = add(threads, "a", "b", "c<a", "d<x1", "e<d")
    assert [step.post.absent for step in steps] == ["", "", "earlier", "lost", ""]
    assert placed(threads) == ["d<", "e<d"]


def test_a_long_thread_loses_its_oldest_reply_and_keeps_what_stands_below_it() -> None:
    threads = Threads(in_thread=3)
    *_, last = add(threads, "a", "b<a", "c<b", "d<c")
    assert last.replies_out == ("b",)
    assert placed(threads) == ["a<", "c<a", "d<c"]
    assert [each.absent for each in threads] == ["", "earlier", ""]
    [late] = add(threads, "e<b")
    assert (late.post.below, late.post.absent, late.replies_out) == ("a", "earlier", ("c",))
    assert (threads.hidden_threads, threads.hidden_replies) == (0, 2)


def test_the_original_of_a_new_reply_may_be_left_out_for_it() -> None:
    threads = Threads(in_thread=2)
    *_, last = add(threads, "a", "b<a", "c<b")
    assert last.replies_out == ("b",)
    assert (last.post.below, last.post.absent) == ("a", "earlier")


def test_posts_are_bounded_in_all() -> None:
    threads = Threads(posts=4)
    steps = add(threads, "a", "b<a", "c<a", "d", "e<d")
    assert steps[-1].threads_out == ("a",)
    assert placed(threads) == ["d<", "e<d"]
    steps = add(threads, "f<d", "g<d", "h<d")
    assert steps[-1].replies_out == ("e",)
    assert len(placed(threads)) == 4


@st.composite
def logs(draw: st.DrawFn) -> list[str]:
    """Posts in the order of a log; some are replies, also to what was never there."""
    said: list[str] = []
    for place in range(draw(st.integers(1, 40))):
        originals = ["", "x9", "never", *(each.partition("<")[0] for each in said)]
        original = draw(st.sampled_from(originals))
        said.append(f"p{place}<{original}" if original else f"p{place}")
    return said


@given(logs(), st.integers(1, 4), st.integers(2, 6), st.integers(2, 12))
def test_a_page_that_was_open_shows_what_a_new_one_shows(
    log: list[str], most: int, in_thread: int, posts: int
) -> None:
    threads = Threads(most, in_thread, posts)
    opened = RepeatedPage()
    for each in log:
        [step] = add(threads, each)
        opened.step(step)
        new = RepeatedPage()
        for shown in threads:
            new.show(shown)
        assert opened.tree() == new.tree()
        assert opened.tree()[0][0].key == step.post.key or step.post.below
        assert len(threads) <= most
        assert len([*threads]) <= posts
        assert all(len(opened.of_thread(tree)) <= in_thread for tree in opened.tree())
        assert not opened.below_another


# --- what is lost --------------------------------------------------------------------------------


def test_what_was_in_a_gap_is_lost_and_nothing_else() -> None:
    lost = LostPosts()
    lost.add(Gap("board", "n3", 7, after=event_number(0, 20), up_to=event_number(0, 25)))

    def is_lost(counter: int, birth: int = 7, origin: str = "n3") -> bool:
        return lost.is_lost(key_of_post(Reference(origin, birth, event_number(0, counter), 1)))

    assert [is_lost(counter) for counter in (20, 21, 25, 26)] == [False, True, True, False]
    assert not is_lost(21, birth=8)
    assert not is_lost(21, origin="n2")
    assert lost.sentences() == ["what n3 posted after n3:20, up to n3:25, is lost to this node"]


def test_a_gap_of_an_event_that_nobody_knows_is_told() -> None:
    lost = LostPosts()
    lost.add(Gap("board", "", 0, after=0, up_to=0))
    assert lost.sentences() == ["an event is lost to this node, and nobody knows whose it was"]


def test_gaps_are_bounded_and_counted() -> None:
    lost = LostPosts(most=30)
    for counter in range(1, 100):
        lost.add(Gap("board", "n3", counter, after=0, up_to=event_number(0, counter)))
    assert lost.count == 99
    assert len(lost.sentences()) == SHOWN_GAPS
    assert lost.sentences()[0] == "what n3 posted up to n3:99 is lost to this node"
    assert lost.is_lost(key_of_post(Reference("n3", 99, 1)))
    assert not lost.is_lost(key_of_post(Reference("n3", 1, 1)))
