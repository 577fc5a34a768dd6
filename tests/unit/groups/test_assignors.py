"""Who should read what: everything to exactly one subscriber, evenly, and with as few moves as that allows."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cairnmq.groups.assignors import ASSIGNORS, RANGE, UNIFORM, Counts, Result, Seat, assign_range, assign_uniform
from cairnmq.groups.partitions import count, each

A, B, C = (letter * 16 for letter in (b"a", b"b", b"c"))


def seats(*names: str, topics: Sequence[bytes] = (A,)) -> list[Seat]:
    return [Seat(name, None, frozenset(topics)) for name in names]


def after(members: Sequence[Seat], result: Result) -> list[Seat]:
    """The members as they are when they were given this."""
    return [replace(seat, target=result.get(seat.member_id, {})) for seat in members]


def loads(result: Result) -> list[int]:
    return sorted(map(count, result.values()))


def check(members: Sequence[Seat], counts: Counts, result: Result) -> None:
    """Every partition that somebody subscribes to has one reader, who does."""
    given_out = [place for target in result.values() for place in each(target)]
    subscribed = {topic_id for seat in members for topic_id in seat.topics if topic_id in counts}
    assert sorted(given_out) == sorted((t, index) for t in subscribed for index in range(counts[t]))
    for seat in members:
        assert result[seat.member_id].keys() <= seat.topics
        assert all(result[seat.member_id].values()), "no empty sets"


topics = st.sets(st.sampled_from([A, B, C]))
situations = st.tuples(
    st.dictionaries(st.sampled_from(["m1", "m2", "m3", "m4", "m5"]), topics, min_size=1),
    st.dictionaries(st.sampled_from([A, B, C]), st.integers(1, 7)),
)


@given(before=situations, now=situations, name=st.sampled_from([UNIFORM, RANGE]))
def test_everything_has_one_reader_whatever_was_before(
    before: tuple[dict[str, set[bytes]], dict[bytes, int]],
    now: tuple[dict[str, set[bytes]], dict[bytes, int]],
    name: str,
) -> None:
    assign = ASSIGNORS[name]
    former = assign([Seat(member, None, frozenset(t)) for member, t in before[0].items()], before[1])
    members = [Seat(member, None, frozenset(t), former.get(member, {})) for member, t in now[0].items()]
    result = assign(members, now[1])
    check(members, now[1], result)
    assert assign(after(members, result), now[1]) == result, "what is right is left alone"


def test_uniform_is_even_over_all_topics() -> None:
    result = assign_uniform(seats("x", "y", "z", topics=[A, B]), {A: 4, B: 4})
    assert loads(result) == [2, 3, 3]


def test_uniform_moves_only_what_a_new_member_gets() -> None:
    two = seats("x", "y", topics=[A, B])
    counts = {A: 6, B: 6}
    first = assign_uniform(two, counts)
    second = assign_uniform([*after(two, first), *seats("z", topics=[A, B])], counts)
    assert loads(second) == [4, 4, 4]
    for name in ("x", "y"):
        assert set(each(second[name])) < set(each(first[name]))


def test_uniform_gives_what_a_member_had_to_the_others() -> None:
    three = seats("x", "y", "z")
    first = assign_uniform(three, {A: 9})
    second = assign_uniform(after(three, first)[:2], {A: 9})
    assert loads(second) == [4, 5]
    for name in ("x", "y"):
        assert set(each(first[name])) < set(each(second[name]))


def test_uniform_with_more_members_than_partitions() -> None:
    assert loads(assign_uniform(seats("x", "y", "z"), {A: 2})) == [0, 1, 1]


def test_uniform_with_unlike_subscriptions() -> None:
    members = [*seats("both", topics=[A, B]), *seats("only a"), *seats("only b", topics=[B])]
    result = assign_uniform(members, {A: 6, B: 3})
    check(members, {A: 6, B: 3}, result)
    assert loads(result) == [3, 3, 3]


def test_uniform_evens_out_when_a_reader_of_everything_comes() -> None:
    few = [*seats("a", topics=[A]), *seats("b", topics=[B])]
    first = assign_uniform(few, {A: 6, B: 6})
    members = [*after(few, first), *seats("both", topics=[A, B])]
    second = assign_uniform(members, {A: 6, B: 6})
    assert loads(second) == [4, 4, 4]
    assert set(each(second["a"])) < set(each(first["a"])) and set(each(second["b"])) < set(each(first["b"]))


def test_range_gives_neighbours_and_the_same_numbers_in_every_topic() -> None:
    result = assign_range(seats("y", "x", topics=[A, B]), {A: 5, B: 5})
    assert result == {
        "x": {A: frozenset({0, 1, 2}), B: frozenset({0, 1, 2})},
        "y": {A: frozenset({3, 4}), B: frozenset({3, 4})},
    }


def test_range_orders_static_members_by_their_names() -> None:
    members = [Seat("m1", None, frozenset([A])), Seat("m2", "b", frozenset([A])), Seat("m3", "a", frozenset([A]))]
    result = assign_range(members, {A: 3})
    assert result == {"m3": {A: frozenset({0})}, "m2": {A: frozenset({1})}, "m1": {A: frozenset({2})}}


@pytest.mark.parametrize("name", [UNIFORM, RANGE])
@pytest.mark.parametrize("alike", [True, False])
def test_a_thousand_members_on_ten_thousand_partitions(name: str, alike: bool) -> None:
    """About 10 to 60 ms; the limit is for a busy machine."""
    counts = {number.to_bytes(16, "big"): 100 for number in range(100)}
    ids = sorted(counts)
    members = [
        Seat(f"m{n}", None, frozenset(ids if alike else [ids[(n + step) % 100] for step in range(1 + n % 50)]))
        for n in range(1000)
    ]
    assign = ASSIGNORS[name]
    first = assign(members, counts)
    check(members, counts, first)
    if name == UNIFORM and alike:
        assert loads(first)[0] == loads(first)[-1] == 10
    started = time.thread_time()
    assign(after(members, first)[1:], counts)
    assert time.thread_time() - started < 1.0
