from __future__ import annotations

from hashlib import md5

from tasks.records import NodeSpec
from tasks.storage.whereabouts import Whereabouts

SIZES = {md5(str(number).encode()).hexdigest(): 100 for number in range(8)}


def nodes(*names: str) -> list[NodeSpec]:
    return [NodeSpec(name) for name in names]


def test_an_object_is_asked_of_its_node() -> None:
    where = Whereabouts(SIZES, nodes("a", "b"))
    for digest, owner in where.owner.items():
        assert where.to_ask(digest) == [owner]
    assert len(where.unplaced) == 8


def test_while_an_object_moves_it_is_asked_of_where_it_was() -> None:
    where = Whereabouts(SIZES, nodes("a"))
    moved = where.restage(nodes("a", "b"))
    assert len(moved) == 4
    assert where.is_moving
    for digest in moved:
        assert where.to_ask(digest) == ["a", "b"]
        where.note(digest, "b", True)
        assert where.to_ask(digest) == ["b", "a"]
    assert not where.is_moving
    assert set(where.unplaced) == set(SIZES) - set(moved)


def test_an_object_that_moves_twice_before_it_has_arrived_is_asked_of_both_places() -> None:
    where = Whereabouts(SIZES, nodes("a"))
    where.restage(nodes("b"))
    where.restage(nodes("c"))
    assert {tuple(where.to_ask(digest)) for digest in SIZES} == {("b", "a", "c")}
    assert where.former(next(iter(SIZES))) == ["b", "a"]


def test_one_that_comes_back_has_its_node_once() -> None:
    where = Whereabouts(SIZES, nodes("a"))
    where.restage(nodes("b"))
    where.restage(nodes("a"))
    assert {tuple(where.to_ask(digest)) for digest in SIZES} == {("b", "a")}


def test_what_is_placed_nowhere_is_asked_of_nobody_and_waited_for_by_nobody() -> None:
    where = Whereabouts(SIZES, [NodeSpec("a", 300)])
    homeless = [digest for digest, owner in where.owner.items() if owner is None]
    assert len(homeless) == 5
    assert all(where.to_ask(digest) == [] for digest in homeless)
    assert len(where.unplaced) == 3


def test_a_copy_that_is_lost_is_no_copy() -> None:
    where = Whereabouts(SIZES, nodes("a"))
    digest = next(iter(SIZES))
    where.note(digest, "a", True)
    assert where.is_here(digest, "a")
    where.note(digest, "a", False)
    assert digest in where.unplaced
