"""What counts as a post of a board, and what is shown of everything else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast import UsageError
from ordercast.board.content import (
    LARGEST_POST,
    LONGEST_AUTHOR,
    LONGEST_TEXT,
    SHOWN_FOREIGN,
    Content,
    encoded,
    foreign_text,
    read_content,
)
from ordercast.board.keys import key_of_post, reference_of
from ordercast.kernel.log import Reference


def test_a_post_reads_as_it_was_written() -> None:
    written = Content("ann", "two lines\n\tand <b>no</b> \u05d0 markup")
    assert read_content(encoded(written)) == written


def test_the_longest_text_in_the_widest_script_fits() -> None:
    content = Content("\U0001f600" * LONGEST_AUTHOR, '"\\' * (LONGEST_TEXT // 2))
    assert len(encoded(content)) <= LARGEST_POST
    assert read_content(encoded(content)) == content
    wide = Content("a", "\U0001f600" * LONGEST_TEXT)
    assert read_content(encoded(wide)) == wide
    escaped = json.dumps({"author": "a", "text": "\U0001f600" * 2500}).encode()
    assert len(escaped) > 12 * 2500
    assert read_content(escaped) == Content("a", "\U0001f600" * 2500)


@pytest.mark.parametrize(
    ("author", "text", "said"),
    [
        ("", "x", "the author is empty"),
        ("ann", " \n", "the text is empty"),
        ("a" * (LONGEST_AUTHOR + 1), "x", "one line of 60 characters at most"),
        ("two\nlines", "x", "one line of 60 characters at most"),
        ("ann", "x" * (LONGEST_TEXT + 1), "the text has 4001 characters, 4000 at most"),
        ("ann", "\x1b[31mred", "no control characters"),
        ("a\x00nn", "x", "no control characters"),
        ("ann", "back\x9bagain", "no control characters"),
    ],
)
def test_what_may_not_be_posted_is_foreign_to_others(author: str, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        encoded(Content(author, text))
    assert read_content(json.dumps({"author": author, "text": text}).encode()) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        b"\xff\xfe",
        b"[]",
        b'{"author": "a"}',
        b'{"author": 1, "text": "x"}',
        b'{"author": "\xed\xa0\x80", "text": "x"}',
        b'{"author": "a", "text": "x", "more": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"author": "a", "text": "x"}' + b" " * LARGEST_POST,
    ],
)
def test_garbage_is_foreign(data: bytes) -> None:
    assert read_content(data) is None


def test_a_later_version_may_say_more() -> None:
    assert read_content(b'{"author":"a","text":"x","colour":"red"}') == Content("a", "x")


@given(st.binary(max_size=500))
def test_any_bytes_can_be_read_and_shown(data: bytes) -> None:
    read_content(data)
    assert len(foreign_text(data)) <= SHOWN_FOREIGN + 1
    assert foreign_text(data).isprintable()


def test_what_a_foreign_post_begins_with_is_shown() -> None:
    assert foreign_text(b"hello") == "hello"
    assert foreign_text(b"\x1b[2J\n\xff") == "\\x1b[2J\\n\ufffd"


@given(
    st.from_regex(r"[A-Za-z0-9._-]{1,100}", fullmatch=True),
    st.integers(0, (1 << 63) - 1),
    st.integers(0, (1 << 62) - 1),
    st.integers(0, (1 << 31) - 1),
)
def test_a_key_names_one_post(origin: str, birth: int, number: int, index: int) -> None:
    reference = Reference(origin, birth, number, index)
    assert reference_of(key_of_post(reference)) == reference


@pytest.mark.parametrize(
    "key", ["", "n1", "n1~7~1", "n1~7~1~0 ", "n1~g~1~0", f"n1~7~{1 << 62}~0", "n1~8" + "0" * 15]
)
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match="names no post"):
        reference_of(key)
