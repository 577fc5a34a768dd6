"""The allowance over all connections: bounded, fair enough, and nobody is forgotten."""

from __future__ import annotations

import pytest

from cairnmq.broker.memory_budget import Budget, Tally


def test_one_request_may_exceed_the_allowance_but_not_a_second() -> None:
    budget = Budget(100)
    assert budget.reserve(1000)
    assert not budget.reserve(1)
    budget.release(1000)
    assert budget.reserve(1)


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_waiters_are_woken_when_there_is_room_and_only_then(size: int) -> None:
    budget, woken = Budget(100), []
    budget.reserve(100)
    budget.reserve(0)
    budget.wait(lambda: woken.append("a"), size)
    budget.release(0)
    assert woken == []
    budget.release(1)
    assert woken == ["a"]


def test_small_ones_have_a_quarter_whatever_the_large_ones_take() -> None:
    budget, woken = Budget(1 << 20), []
    assert budget.reserve(3 << 20), "it may exceed the allowance"
    assert not budget.reserve(1 << 17)
    for _ in range(8):
        assert budget.reserve(32 << 10)
    assert not budget.reserve(32 << 10)
    budget.wait(lambda: woken.append("large"), 1 << 20)
    budget.wait(lambda: woken.append("small"), 32 << 10)
    budget.release(32 << 10)
    assert woken == ["small"] and budget.wanted
    assert budget.reserve(32 << 10)
    budget.release(3 << 20)
    assert woken == ["small", "large"] and not budget.wanted


def test_nobody_is_left_waiting_when_nothing_is_in_flight() -> None:
    budget, woken = Budget(10), []
    budget.reserve(10)
    for number in range(1000):
        budget.wait(lambda number=number: woken.append(number))  # type: ignore[misc]
    budget.release(10)
    assert woken == list(range(1000))


def test_a_small_release_wakes_few() -> None:
    budget, woken = Budget(10), []
    budget.reserve(10)
    for number in range(1000):
        budget.wait(lambda number=number: woken.append(number))  # type: ignore[misc]
    budget.release(1)
    assert 1 <= len(woken) <= 100


def test_a_forgotten_waiter_is_not_woken() -> None:
    budget, woken = Budget(10), []

    def wake() -> None:
        woken.append(1)

    budget.reserve(10)
    budget.wait(wake)
    budget.forget(wake)
    budget.forget(wake)
    budget.release(10)
    assert woken == []


def test_releasing_more_than_was_reserved_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="released more"):
        Budget(10).release(1)


def test_one_holder_of_a_part_may_go_on_when_all_is_given() -> None:
    """Else holders of parts would wait for one another for ever."""
    budget = Budget(100)
    assert budget.reserve(60) and budget.reserve(60)
    assert budget.reserve_more(50, "first") and budget.reserve_more(50, "first")
    assert not budget.reserve_more(50, "second")
    budget.give_back(160, "first")
    assert budget.reserve_more(50, "second") and budget.reserve_more(50, "second")
    budget.give_back(160, "second")
    assert budget.used == 0


def test_what_one_answer_may_take_shrinks_as_little_is_left() -> None:
    budget = Budget(48 << 20)
    assert budget.share == 8 << 20
    budget.take(24 << 20)
    assert budget.share == 4 << 20
    budget.take(64 << 20)
    assert budget.full and budget.share == 64 << 10


def test_a_tally_counts_anew_before_it_refuses_but_not_all_the_time() -> None:
    held, counts = [0], []

    def count() -> int:
        counts.append(1)
        return held[0]

    tally = Tally(100, count)
    assert all(tally.admits(10, 5000) for _ in range(10)), "each may have replaced the one before"
    held[0] = 20
    assert tally.admits(10, 6000) and len(counts) == 2
    held[0] = 100
    assert all(tally.admits(10, 7000) for _ in range(7))
    assert not any(tally.admits(10, 7000 + late) for late in range(500))
    assert len(counts) == 3
    held[0] = 0
    assert tally.admits(10, 8000)


def test_a_tally_that_holds_too_much_admits_what_brings_nothing() -> None:
    tally = Tally(100, lambda: 200)
    assert tally.admits(0, 5000) and tally.admits(-150, 5000)
    assert not tally.admits(10, 5000), "nothing was taken off either: what is held is counted"


def test_small_requests_have_room_when_large_ones_have_none() -> None:
    budget = Budget(4_000_000)
    assert budget.reserve(4_000_000)
    assert not budget.reserve(100_000)
    assert all(budget.reserve(50_000) for _ in range(20))
    assert not budget.reserve(50_000)


def test_when_the_one_let_through_is_done_the_next_is_woken_although_nothing_is_left() -> None:
    budget, woken = Budget(100), []
    assert budget.reserve(60) and budget.reserve(60) and budget.reserve_more(50, "first")
    budget.wait(lambda: woken.append("second"))
    budget.take(110)  # the request of the first begins
    budget.give_back(110, "first")
    assert woken == ["second"] and budget.reserve_more(50, "second")


def test_nobody_is_let_through_while_a_large_request_is_under_way() -> None:
    """Each would be whole before the one before it was done, and all of them in memory at once."""
    budget, woken = Budget(1_000_000), []
    assert budget.reserve(100_000) and budget.reserve(100_000) and budget.reserve(900_000)
    assert budget.reserve_more(2_000_000, "first")
    budget.start(2_100_000)
    budget.take(2_100_000)
    budget.give_back(2_100_000, "first")
    assert not budget.reserve_more(2_000_000, "second")
    budget.wait(lambda: woken.append("second"))
    budget.finish(2_100_000)
    assert woken == ["second"] and budget.reserve_more(2_000_000, "second")


def test_small_requests_under_way_keep_nobody_waiting() -> None:
    budget = Budget(1000)
    assert budget.reserve(400)
    budget.start(400)
    assert budget.reserve(600) and budget.reserve_more(2_000_000, "first")
