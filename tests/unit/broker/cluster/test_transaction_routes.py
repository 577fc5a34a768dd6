"""Whoever leads is asked, everything for one broker together; what cannot be asked is asked again by the caller."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from cairnmq.broker.cluster import transaction_routes
from cairnmq.broker.cluster.transaction_routes import _messages
from cairnmq.broker.internal.link import Link
from cairnmq.broker.leadership import JournalView
from cairnmq.errors import ErrorCode
from cairnmq.groups.pending import EndLimit
from cairnmq.storage.batches.markers import Marker
from cairnmq.wire.internal_transactions import EndOffsets, Enter, Markers
from unit.broker.rig import scenario
from unit.broker.two_brokers import LEADER, two_brokers

OK = ErrorCode.NONE


def marker(queue: int) -> Marker:
    return Marker(queue, 1 << 41, 3, True, 1, 2)


@scenario
async def test_markers_for_one_broker_go_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        routes = both.routes_of(both.coordinator)
        queues = [both.leader.queue("a", partition).queue_id for partition in (0, 1)]
        later = both.coordinator.ctx.catalog.image.next_queue_id
        codes = await routes.write_markers([marker(queue) for queue in (*queues, later)])
        assert codes == [OK, OK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        (asked,) = both.to_leader.asked
        assert isinstance(asked, Markers)
        assert [(one.journal, one.epoch, len(one.markers)) for one in asked.journals] == [
            (0, both.leader.ctx.leadership.led[0], 2)
        ]


@scenario
async def test_a_topic_that_is_deleted_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        queue = both.coordinator.queue("a").queue_id
        await both.coordinator.ctx.catalog.delete_topic(both.coordinator.ctx.catalog.image.topics["a"])
        assert await both.routes_of(both.coordinator).write_markers([marker(queue)]) == [OK]
        assert not both.to_leader.asked


@scenario
async def test_nobody_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        routes, leadership = both.routes_of(both.coordinator), both.coordinator.ctx.leadership
        queue, limit = both.coordinator.queue("a").queue_id, EndLimit(3, True, 9)
        for view in (JournalView(-1, 9, (1, 2), (1, 2)), JournalView(3, 9, (1, 2, 3), (1, 2, 3))):
            leadership.know(0, view)
            assert await routes.write_markers([marker(queue)]) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
            assert await routes.end_offsets(["g"], 1 << 41, True, limit) == [ErrorCode.NOT_COORDINATOR]
            assert (await routes.enter(Enter("t", 1, 0, True, [queue]))).error == ErrorCode.NOT_COORDINATOR


@scenario
async def test_a_link_that_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        both.to_leader.is_cut = True
        queue = both.coordinator.queue("a").queue_id
        codes = await both.routes_of(both.coordinator).write_markers([marker(queue)])
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


@scenario
async def test_links_are_wanted_once_they_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        routes, wanted = both.routes_of(both.coordinator), list[bool]()
        monkeypatch.setattr(routes, "_want_links", lambda: wanted.append(routes.needs_links))
        queue = both.coordinator.queue("a").queue_id
        assert await routes.write_markers([marker(queue)]) == [OK] and not wanted
        monkeypatch.setattr(routes, "_links", {})
        for _ in range(2):
            assert await routes.write_markers([marker(queue)]) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert wanted == [True]


@scenario
async def test_the_first_wait_for_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        routes, links = both.routes_of(both.leader), dict[int, Link]()
        monkeypatch.setattr(transaction_routes, "FIRST_LINKS_SECONDS", 60.0)
        monkeypatch.setattr(routes, "_links", links)
        both.leader.ctx.leadership.know(0, JournalView(3, 9, (1, 2, 3), (1, 2, 3)))
        first = asyncio.create_task(routes.enter(Enter("t", 1, 0, False, [1])))
        await asyncio.sleep(0)
        routes.linked(4, cast(Link, both.to_leader))  # of another broker
        await asyncio.sleep(0.01)
        assert not first.done()
        links[3] = cast(Link, both.to_coordinator)
        routes.linked(3, links[3])
        assert not (await first).error and len(both.to_coordinator.asked) == 1


@scenario
async def test_links_that_do_not_come_are_not_waited_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        routes = both.routes_of(both.leader)
        monkeypatch.setattr(transaction_routes, "FIRST_LINKS_SECONDS", 0.05)
        monkeypatch.setattr(routes, "_links", {})
        both.leader.ctx.leadership.know(0, JournalView(3, 9, (1, 2, 3), (1, 2, 3)))
        question = Enter("t", 1, 0, False, [1])
        answers = await asyncio.gather(*(routes.enter(question) for _ in range(3)))
        assert [answer.error for answer in answers] == [ErrorCode.NOT_COORDINATOR] * 3
        monkeypatch.setattr(transaction_routes, "FIRST_LINKS_SECONDS", 600.0)
        assert (await routes.enter(question)).error == ErrorCode.NOT_COORDINATOR


@scenario
async def test_this_broker_asks_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        leadership = both.coordinator.ctx.leadership
        leadership.know(0, JournalView(leadership.node, leadership.led[0], (1, 2, 3), (1, 2, 3)))
        queue = both.coordinator.queue("a")
        assert await both.routes_of(both.coordinator).write_markers([marker(queue.queue_id)]) == [OK]
        assert queue.end == 1 and not both.to_leader.asked


@scenario
async def test_many_are_asked_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_routes, "MARKERS_MAX", 2)
    monkeypatch.setattr(transaction_routes, "NAMES_BYTES_MAX", 150)
    monkeypatch.setattr(transaction_routes, "QUEUES_MAX", 2)
    async with two_brokers(tmp_path, monkeypatch, partitions=5) as both:
        routes = both.routes_of(both.coordinator)
        queues = [both.leader.queue("a", partition).queue_id for partition in range(5)]
        assert await routes.write_markers([marker(queue) for queue in queues]) == [OK] * 5
        groups = [f"g{number}" for number in range(5)]
        assert await routes.end_offsets(groups, 1 << 41, True, EndLimit(3, True, 9)) == [OK] * 5
        kinds = [type(one) for one in both.to_leader.asked]
        assert kinds.count(Markers) == kinds.count(EndOffsets) == 3
        told = await both.routes_of(both.leader).enter(Enter("t", 1, 0, False, queues))
        assert len(told.errors) == 5 or told.error and len(both.to_coordinator.asked) >= 1


def test_pieces() -> None:
    journals = {1: [0, 1, 2], 2: [3]}
    assert list(_messages(journals, lambda place: 1, 2)) == [{1: [0, 1]}, {1: [2], 2: [3]}]
    assert list(_messages(journals, lambda place: 9, 2)) == [{1: [0]}, {1: [1]}, {1: [2]}, {2: [3]}]
    assert list(_messages({}, lambda place: 1, 2)) == []
    assert LEADER != 1
