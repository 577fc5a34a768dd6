"""Offsets committed as fast as the server answers: raw requests on connections of their own, cheap for the client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from bench.librdkafka import LoadFailed
from cairnmq.wire.codec import decode, encode
from cairnmq.wire.framing import read_response_header, request_frame
from cairnmq.wire.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from load.wire_member import Wire, connect

COMMIT, VERSION = 8, 8
FETCH_VERSION = 8
FIND_VERSION = 4
RETRIED = (14, 15, 16)  # the coordinator is not there yet
RETRY_SECONDS = 0.05
WAIT_SECONDS = 60.0
_STAND_IN = 0x1122334455667788
_OFFSET_BYTES = 8


def commit_request(group: str, topic: str, partitions: Sequence[int], offset: int) -> OffsetCommitRequest:
    rows = [
        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        for partition in partitions
    ]
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=rows)]
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=topics)


async def committed(wire: Wire, group: str, topic: str, partition: int) -> int:
    """The offset that a group has committed; asks until the coordinator answers."""
    asked = OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
    request = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=[asked])])
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        (found,) = (await wire.ask(request, OffsetFetchResponse, FETCH_VERSION)).groups
        if not found.error_code:
            return found.topics[0].partitions[0].committed_offset
        if found.error_code not in RETRIED:
            raise LoadFailed(f"OffsetFetch: error {found.error_code}")
        await asyncio.sleep(RETRY_SECONDS)
    raise LoadFailed(f"no coordinator within {WAIT_SECONDS:g} s")


async def find_coordinator(bootstrap: str, group: str) -> None:
    """Kafka makes the topic of its offsets when somebody asks for a coordinator."""
    wire = await connect(bootstrap)
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        request = FindCoordinatorRequest(coordinator_keys=[group])
        (found,) = (await wire.ask(request, FindCoordinatorResponse, FIND_VERSION)).coordinators
        if not found.error_code:
            wire.close()
            return
        await asyncio.sleep(RETRY_SECONDS)
    raise LoadFailed(f"no coordinator within {WAIT_SECONDS:g} s")


async def commit_once(wire: Wire, group: str, topic: str, partitions: Sequence[int], offset: int) -> None:
    """Asks again while the coordinator is on its way."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        request = commit_request(group, topic, partitions, offset)
        answer = await wire.ask(request, OffsetCommitResponse, VERSION)
        errors = {row.error_code for rows in answer.topics for row in rows.partitions}
        if errors == {0}:
            return
        if not errors <= {0, *RETRIED}:
            raise LoadFailed(f"OffsetCommit: errors {errors}")
        await asyncio.sleep(RETRY_SECONDS)
    raise LoadFailed(f"no coordinator within {WAIT_SECONDS:g} s")


class Committer:
    """One group on one connection: the next commit leaves when the last one is answered. The frame is made once, and
    only the offset in it changes."""

    def __init__(self, wire: Wire, group: str, topic: str, partition: int) -> None:
        self.wire, self.group, self.topic, self.partition = wire, group, topic, partition
        request = commit_request(group, topic, [partition], _STAND_IN)
        self.frame = bytearray(b"".join(request_frame(COMMIT, VERSION, 0, "bench", encode(request, VERSION))))
        self.at = self.frame.index(_STAND_IN.to_bytes(_OFFSET_BYTES))
        self.offset = 1  # the last one that was sent; the first is committed before the clock runs
        self.answered = 0
        self.until = 0.0
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self, until: float) -> None:
        self.until = until
        self._send()

    def _send(self) -> None:
        self.offset += 1
        self.frame[self.at : self.at + _OFFSET_BYTES] = self.offset.to_bytes(_OFFSET_BYTES)
        self.wire.send(bytes(self.frame), self._heard)

    def _heard(self, view: memoryview | None) -> None:
        if view is None:
            self.over.set_exception(LoadFailed("the connection is lost"))
            return
        _, position = read_response_header(view, COMMIT, VERSION)
        answer, _ = decode(OffsetCommitResponse, VERSION, view, position)
        if answer.topics[0].partitions[0].error_code:
            self.over.set_exception(LoadFailed(f"OffsetCommit: error {answer.topics[0].partitions[0].error_code}"))
            return
        self.answered += 1
        if time.perf_counter() < self.until:
            self._send()
        else:
            self.over.set_result(None)

    async def check(self) -> None:
        found = await committed(self.wire, self.group, self.topic, self.partition)
        if found != self.offset:
            raise LoadFailed(f"{self.group} committed {self.offset}, and {found} is stored")


async def commit_all(bootstrap: str, topic: str, groups: int, seconds: float, ready: Callable[[], None]) -> int:
    await find_coordinator(bootstrap, topic)
    committers = [Committer(await connect(bootstrap), f"{topic}-{number}", topic, number) for number in range(groups)]
    for one in committers:
        await commit_once(one.wire, one.group, topic, [one.partition], one.offset)
    ready()
    until = time.perf_counter() + seconds
    for one in committers:
        one.begin(until)
    await asyncio.gather(*(one.over for one in committers))
    for one in committers:
        await one.check()
        one.wire.close()
    return sum(one.answered for one in committers)
