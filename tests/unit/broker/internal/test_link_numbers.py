"""Which of a broker's links counts (R26)."""

from __future__ import annotations

import pytest

from cairnmq.broker.internal.link_numbers import LinkNumbers, TooManyBrokers


def test_a_higher_number_or_epoch_replaces() -> None:
    numbers = LinkNumbers[str]()
    assert numbers.admit(2, "data", 5, 1, "a") == (True, None)
    assert numbers.admit(2, "data", 5, 2, "b") == (True, "a")
    assert numbers.admit(2, "data", 6, 1, "c") == (True, "b")
    assert numbers.open == {(2, "data"): "c"}


@pytest.mark.parametrize(("epoch", "number"), [(5, 2), (5, 1), (4, 9)])
def test_older_links_are_refused(epoch: int, number: int) -> None:
    numbers = LinkNumbers[str]()
    numbers.admit(2, "data", 5, 2, "a")
    assert numbers.admit(2, "data", epoch, number, "b") == (False, None)
    assert numbers.open == {(2, "data"): "a"}


def test_brokers_and_purposes_are_apart() -> None:
    numbers = LinkNumbers[str]()
    numbers.admit(2, "data", 5, 2, "a")
    assert numbers.admit(2, "control", 5, 1, "b") == (True, None)
    assert numbers.admit(3, "data", 1, 1, "c") == (True, None)


def test_the_number_of_a_closed_link_counts() -> None:
    numbers = LinkNumbers[str]()
    numbers.admit(2, "data", 5, 2, "a")
    numbers.ended(2, "data", "a")
    assert numbers.open == {}
    assert numbers.admit(2, "data", 5, 2, "b") == (False, None)
    assert numbers.admit(2, "data", 5, 3, "c") == (True, None)


def test_the_end_of_a_replaced_link_changes_nothing() -> None:
    numbers = LinkNumbers[str]()
    numbers.admit(2, "data", 5, 1, "a")
    numbers.admit(2, "data", 5, 2, "b")
    numbers.ended(2, "data", "a")
    assert numbers.open == {(2, "data"): "b"}


def test_what_is_remembered_is_bounded() -> None:
    numbers = LinkNumbers[str](known_max=2)
    numbers.admit(1, "data", 1, 1, "a")
    numbers.admit(2, "data", 1, 1, "b")
    numbers.admit(2, "data", 1, 2, "c")
    with pytest.raises(TooManyBrokers):
        numbers.admit(3, "data", 1, 1, "d")
