"""Topics that members name, or mean by regular expressions."""

from __future__ import annotations

from cairnmq.errors import ErrorCode
from cairnmq.groups.subscribed_topics import SubscribedTopics
from cairnmq.groups.topic_pattern import Patterns
from cairnmq.testing.fake_topics import FakeTopics


def test_topics_are_subscribed_as_long_as_somebody_names_them() -> None:
    topics = SubscribedTopics(Patterns())
    topics.add(("orders",), "")
    topics.add(("orders", "payments"), "")
    topics.remove(("orders",), "")
    assert topics.names() == {"orders", "payments"}
    topics.remove(("orders", "payments"), "")
    assert topics.names() == frozenset()


def test_only_a_change_of_subscribed_topics_counts() -> None:
    known = FakeTopics()
    known.put("orders", 2)
    topics = SubscribedTopics(Patterns())
    topics.add((), "ord.*")
    assert not topics.is_current(known.view) and topics.renew(known.view) and topics.is_current(known.view)
    known.put("other", 1)
    assert not topics.is_current(known.view) and not topics.renew(known.view)
    known.put("ordinary", 1)
    assert topics.renew(known.view) and topics.names() == {"orders", "ordinary"}
    assert len(topics.ids((), "ord.*", known.view)) == 2


def test_an_expression_that_is_wrong_is_refused() -> None:
    refusal = SubscribedTopics(Patterns()).refusal("(")
    assert refusal is not None and refusal.code == ErrorCode.INVALID_REGULAR_EXPRESSION
