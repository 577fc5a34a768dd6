"""What a broker does for transactions of others, and what it refuses: messages are for one epoch of a journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairnmq.broker.cluster.transaction_service import without_queue
from cairnmq.errors import ErrorCode
from cairnmq.metadata.image import Image, QueueRange, Topic
from cairnmq.transactions.messages import Producer
from cairnmq.wire.internal_transactions import (
    EndOffsets,
    Enter,
    Entered,
    JournalEnds,
    JournalMarkers,
    Marked,
    MarkerAsked,
    Markers,
    OffsetsEnd,
    OffsetsEnded,
)
from unit.broker.handlers.test_transactions import Client
from unit.broker.rig import scenario
from unit.broker.two_brokers import TwoBrokers, two_brokers

OK = ErrorCode.NONE
WAIT_MS = 30_000


async def marked(both: TwoBrokers, epoch: int, *queues: int, journal: int = 0) -> list[int]:
    markers = [MarkerAsked(queue, 1 << 41, 3, True, 1, 2) for queue in queues]
    asked = Markers(WAIT_MS, [JournalMarkers(journal, epoch, markers)])
    told = await both.routes_of(both.leader).service.answer(asked)
    assert isinstance(told, Marked)
    return told.errors


@scenario
async def test_markers_are_for_one_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        queue, epoch = both.leader.queue("a"), both.leader.ctx.leadership.led[0]
        for other in (epoch - 1, epoch + 1):
            assert await marked(both, other, queue.queue_id) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert await marked(both, epoch, queue.queue_id, journal=1) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert queue.end == 0
        assert await marked(both, epoch, queue.queue_id) == [OK] and queue.end == 1


@scenario
async def test_markers_close_guards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        queue, epoch = both.leader.queue("a"), both.leader.ctx.leadership.led[0]
        guard = both.guards.open(queue.queue_id, Producer(1 << 41, 2))
        await marked(both, epoch + 1, queue.queue_id)
        assert guard.is_open, "what is refused overtakes nothing"
        await marked(both, epoch, queue.queue_id)
        assert not guard.is_open


@scenario
async def test_unknown_is_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        queue, epoch = both.leader.queue("a"), both.leader.ctx.leadership.led[0]
        later = both.leader.ctx.catalog.image.next_queue_id
        assert await marked(both, epoch, queue.queue_id, later) == [OK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        await both.leader.ctx.catalog.delete_topic(both.leader.ctx.catalog.image.topics["a"])
        assert await marked(both, epoch, queue.queue_id) == [OK]


def test_what_an_image_says_of_queues() -> None:
    image = Image([Topic("a", b"a" * 16, (QueueRange(5, 2, (0,)),))], next_queue_id=9)
    assert [without_queue(image, queue) for queue in (4, 7, 8)] == [OK] * 3
    assert without_queue(image, 9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@scenario
async def test_who_may_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        service = both.routes_of(both.coordinator).service
        client = await Client(both.coordinator).ready()
        epoch = both.coordinator.transactions.epoch

        async def enter(*queues: int, group: str | None = None, adds: bool = False, producer_epoch: int = 0) -> Entered:
            groups = [] if group is None else [group]
            asked = Enter("t", client.pid, producer_epoch, adds, list(queues), groups, WAIT_MS)
            told = await service.answer(asked)
            assert isinstance(told, Entered)
            return told

        assert await enter(1, 2) == Entered(OK, epoch, [ErrorCode.INVALID_TXN_STATE] * 2)
        assert await enter(1, adds=True) == Entered(OK, epoch, [OK])
        assert await enter(1, 2) == Entered(OK, epoch, [OK, ErrorCode.INVALID_TXN_STATE])
        assert await enter(group="g", adds=True) == Entered(OK, epoch, [OK])
        assert (await enter(1, adds=True, producer_epoch=7)).error == ErrorCode.PRODUCER_FENCED
        both.coordinator.ctx.coordinators.drop(0)
        assert (await enter(1)).error == ErrorCode.NOT_COORDINATOR


@scenario
async def test_ends_of_offsets_are_for_one_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        service, epoch = both.routes_of(both.leader).service, both.leader.ctx.leadership.led[0]
        end = OffsetsEnd("g", 1 << 41, 3, True, False, 9)
        is_open = True

        async def ended(epoch: int, journal: int = 0) -> list[int]:
            asked = EndOffsets(WAIT_MS, [JournalEnds(journal, epoch, [end])])
            told = await service.answer(asked, lambda: is_open)
            assert isinstance(told, OffsetsEnded)
            return told.errors

        assert await ended(epoch + 1) == [ErrorCode.NOT_COORDINATOR] == await ended(epoch, journal=1)
        guard = both.guards.open("g", Producer(1 << 41, 3))
        assert await ended(epoch) == [OK] and not guard.is_open
        is_open = False
        assert await ended(epoch) == [ErrorCode.REQUEST_TIMED_OUT], "its link has been closed while it waited"


@scenario
async def test_what_takes_too_long_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as both:
        path = both.leader.replicate(0)
        queue, epoch = both.leader.queue("a"), both.leader.ctx.leadership.led[0]
        service = both.routes_of(both.leader).service
        asked = Markers(20, [JournalMarkers(0, epoch, [MarkerAsked(queue.queue_id, 1 << 41, 3, True, 1, 2)])])
        assert await service.answer(asked) == Marked([ErrorCode.REQUEST_TIMED_OUT])
        assert queue.state.end == 1 and path.journal.durable_end < path.journal.staged_end
