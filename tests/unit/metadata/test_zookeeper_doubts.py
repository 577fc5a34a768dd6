"""What `rev` says about changes whose responses were lost."""

from __future__ import annotations

from cairnmq.metadata.store import Away, Made
from cairnmq.metadata.zookeeper_doubts import Doubts
from cairnmq.metadata.zookeeper_tree import Root, Written
from cairnmq.types import Epoch

ME = "me"


def root(number: int) -> Root:
    """The last transaction of this process that arrived."""
    return Root(revision=50, epoch=9, writers={ME: Written(number, 40, 8), "other": Written(99, 50, 9)})


def test_a_later_version_tells_that_it_was_made() -> None:
    doubts = Doubts(ME)
    assert doubts.next_number() == 1
    doubt = doubts.add(version=5, reason="cut")
    assert doubt.reason == "cut" and doubts.is_open(doubt)
    doubts.settle(root(0), 5)
    assert doubts.is_open(doubt), "it may still arrive"
    doubts.settle(root(1), 6)
    assert doubts.outcome(doubt) == Made(40, Epoch(8))
    doubts.settle(root(2), 7)
    assert doubts.outcome(doubt) == Made(40, Epoch(8))


def test_a_later_version_of_somebody_else_tells_that_it_will_not_be_made() -> None:
    doubts = Doubts(ME)
    doubts.next_number()
    doubt = doubts.add(version=5, reason="cut")
    doubts.settle(Root(writers={"other": Written(1, 1, 1)}), 6)
    outcome = doubts.outcome(doubt)
    assert isinstance(outcome, Away) and "did not arrive" in outcome.reason


def test_of_two_at_one_version_at_most_one_was_made() -> None:
    for arrived in (1, 2, 0):
        doubts = Doubts(ME)
        doubts.next_number()
        first = doubts.add(5, "cut")
        doubts.next_number()
        second = doubts.add(5, "cut")
        doubts.settle(root(arrived), 6)
        made = [isinstance(doubts.outcome(each), Made) for each in (first, second)]
        assert made == [arrived == 1, arrived == 2]
