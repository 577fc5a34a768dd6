"""What the broker tells its splitter about queues."""

from __future__ import annotations

from cairnmq.broker.storage_loop.splitter_messages import Inbox, Specs, framed, orders
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.queue.spec import QueueSpec


def told(specs: list[QueueSpec]) -> list[QueueSpec]:
    """Sent and received."""
    (order,) = orders(Inbox().feed(framed(Specs.of(specs))))
    assert isinstance(order, Specs)
    return order.specs()


def test_queues_of_a_topic_share_its_settings() -> None:
    """A copy of the settings for each of 100,000 queues was 80 MB of the splitter's memory."""
    mine, other = LogConfig(), LogConfig(retention_ms=5)
    specs = [QueueSpec(number, "t", number, b"t" * 16, mine) for number in range(5)]
    specs += [QueueSpec(9, "u", 0, b"u" * 16, other), QueueSpec(5, "t", 5, b"t" * 16, LogConfig(retention_ms=7))]
    found = told(specs)
    assert sorted(found, key=lambda spec: spec.queue_id) == sorted(specs, key=lambda spec: spec.queue_id)
    assert len({id(spec.config) for spec in found}) == 3


def test_no_queue_is_left() -> None:
    assert told([]) == []
