"""What a node has received: the vector, the tree of hashes, and how two nodes compare them."""

from __future__ import annotations

from random import Random

import pytest

from ordercast.kernel.log import Knowledge, bucket_of, key_of
from ordercast.protocol.hpp import received
from ordercast.protocol.hpp.received import HashTree, LastNumbers


def test_a_vector_has_the_last_number_of_each_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received, "MOST_RECENT", 20)
    draw, vector, expected = Random(1), LastNumbers(), dict[int, int]()
    for _ in range(3000):
        key = key_of((f"n{draw.randrange(300)}", 1))
        expected[key] = number = expected.get(key, 0) + draw.randrange(1, 5)
        vector.put(key, number)
        assert vector.get(key) == number
    assert len(vector) == len(expected)
    assert dict(vector.items()) == expected
    assert vector.get(key_of(("nobody", 1))) == 0
    for bucket in range(8):
        inside = {k: n for k, n in expected.items() if bucket_of(k, 8) == bucket}
        assert dict(vector.within({bucket}, 8)) == inside


@pytest.mark.parametrize("most_recent", [20, 1000])
def test_a_vector_of_many_streams_is_as_one_that_grew(
    most_recent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(received, "MOST_RECENT", most_recent)
    monkeypatch.setattr(received, "_SORTED_AT_ONCE", 50)
    draw, grown = Random(1), LastNumbers()
    pairs = [(key_of((f"n{draw.randrange(200)}", 1)), draw.randrange(1, 99)) for _ in range(300)]
    for key, number in pairs:
        grown.put(key, max(number, grown.get(key)))
    vector = LastNumbers.of(iter(pairs), len(pairs))
    assert len(vector) == len(grown) < len(pairs)
    assert sorted(vector.items()) == sorted(grown.items())
    vector.put(pairs[0][0], 100)
    assert vector.get(pairs[0][0]) == 100


def test_equal_vectors_have_equal_trees_and_others_differ_where_they_differ() -> None:
    items = [(key_of((f"n{number}", 7)), number + 2) for number in range(200)]
    tree, other = HashTree(4, 3, items), HashTree(4, 3, [])
    for key, number in reversed(items):
        other.change(key, 0, number - 1)
        other.change(key, number - 1, number)
    assert [tree.branches(0, 0), tree.branches(2, 5)] == [
        other.branches(0, 0),
        other.branches(2, 5),
    ]
    key, number = items[17]
    other.change(key, number, number + 1)
    for level in range(3):
        node = bucket_of(key, 4**level)
        differing = [
            place
            for place, pair in enumerate(
                zip(tree.branches(level, node), other.branches(level, node), strict=True)
            )
            if pair[0] != pair[1]
        ]
        assert differing == [bucket_of(key, 4 ** (level + 1)) - 4 * node]


def test_of_an_equal_bucket_only_what_is_below_the_mark_is_there() -> None:
    stream = "n1", 5
    bucket = bucket_of(key_of(stream), 4)
    equal = Knowledge({}, 10, frozenset({(bucket + 1) % 4}), 4)
    assert not equal.lacks(stream, 3, 9)
    assert equal.lacks(stream, 3, 10)
    differing = Knowledge({key_of(stream): 3}, 10, frozenset({bucket}), 4)
    assert not differing.lacks(stream, 3, 20)
    assert differing.lacks(stream, 4, 2)
