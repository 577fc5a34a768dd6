"""The splitter's end of the socket."""

from __future__ import annotations

import pytest

from cairnmq.broker.storage_loop.broker_link import BrokerGone, BrokerLink, polled
from cairnmq.broker.storage_loop.splitter_messages import Ask, Inbox, Seen, Specs, framed, pair, reports


def test_orders_that_come_before_the_response_wait_in_their_order() -> None:
    broker, theirs = pair()
    link = BrokerLink(theirs, polled(theirs))
    broker.sendall(framed(Seen(1)) + framed(Seen(2)) + framed(Specs([])) + framed(Seen(3)))
    assert link.resolve([4]) == []
    assert list(link.waiting) == [Seen(1), Seen(2), Seen(3)]
    assert reports(Inbox().feed(broker.recv(1 << 16))) == [Ask([4])]


def test_a_broker_that_is_gone() -> None:
    broker, theirs = pair()
    link = BrokerLink(theirs, polled(theirs))
    link.receive(0.0)
    assert not link.waiting
    broker.close()
    with pytest.raises(BrokerGone):
        link.receive(1.0)
