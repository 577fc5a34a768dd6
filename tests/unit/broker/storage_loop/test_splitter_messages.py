"""What the broker tells its splitter about queues."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import get_args

from cairnmq.broker.storage_loop.broker_link import BrokerLink, polled
from cairnmq.broker.storage_loop.splitter_messages import (
    MESSAGES,
    Begin,
    Direction,
    Inbox,
    Order,
    Report,
    Specs,
    framed,
    orders,
    pair,
)
from cairnmq.broker.storage_loop.splitter_process import SplitterProcess, this_machine
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.queue.spec import QueueSpec
from unit.broker.rig import open_rig


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


def test_the_table_names_every_message_and_its_direction() -> None:
    sides = {Direction.TO_SPLITTER: set(get_args(Order)), Direction.TO_BROKER: set(get_args(Report))}
    for direction, expected in sides.items():
        assert {kind for kind, (to, _) in MESSAGES.items() if to is direction} == expected


def test_the_page_has_the_same_table() -> None:
    page = (Path(__file__).parents[4] / "docs" / "architecture.md").read_text()
    rows = [f"| `{kind.__name__}` | {to.value} | {meaning} |" for kind, (to, meaning) in MESSAGES.items()]
    assert "\n".join(rows) in page


def test_each_side_takes_all_of_its_messages() -> None:
    link = pair()[0]
    process = SplitterProcess(BrokerLink(link, polled(link)), this_machine())
    assert set(process.actions) == set(get_args(Order)) - {Begin, Specs}, "the first one, and the response to Ask"


async def _reports_taken(tmp_path: Path) -> set[type]:
    async with open_rig(tmp_path) as rig:
        return set(rig.ctx.store.splitter.reports.actions)


def test_the_broker_takes_every_report(tmp_path: Path) -> None:
    assert asyncio.run(_reports_taken(tmp_path)) == set(get_args(Report))
