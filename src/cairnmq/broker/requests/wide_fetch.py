"""A fetch of very many partitions, answered piece by piece with turns of the loop for others in between.

Each piece is a fetch of its own that does not wait, and leaves nothing but the bytes of its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

from msgspec.structs import replace

from cairnmq.broker.requests.reply import Reply
from cairnmq.types import Buffer
from cairnmq.wire.codec import Encoded, encode
from cairnmq.wire.messages import FetchRequest, FetchResponse

TURN_PARTITIONS = 5000
WAIT_SECONDS_MAX = 1.0  # what such a request holds is much, so it is answered soon, also with nothing
LOOK_SECONDS = 0.1


class Piece(Protocol):
    """A fetch of some of the partitions. `size` counts record bytes, also those of pieces before it."""

    size: int
    urgent: bool

    def begin(self) -> Reply | list[Buffer]: ...


def is_wide(request: FetchRequest) -> bool:
    return sum(len(topic.partitions) for topic in request.topics) > TURN_PARTITIONS


async def fetch_in_turns(
    request: FetchRequest, version: int, piece: Callable[[FetchRequest, int], Piece]
) -> list[Buffer]:
    """The answer of a request that gets no session. Takes the request apart."""
    loop = asyncio.get_running_loop()
    until = loop.time() + min(request.max_wait_ms / 1000, WAIT_SECONDS_MAX)
    pieces = list(_pieces(request))
    while True:
        body, size, urgent = await _once(pieces, version, piece)
        if urgent or size >= request.min_bytes or loop.time() >= until:
            return body
        await asyncio.sleep(LOOK_SECONDS)


def _pieces(request: FetchRequest) -> Iterator[FetchRequest]:
    """Partitions that are named several times are served once, as they are named last."""
    of_topics: dict[tuple[str, bytes], dict[int, FetchRequest.FetchPartition]] = {}
    for topic in request.topics:
        of_topic = of_topics.setdefault((topic.topic, topic.topic_id), {})
        of_topic.update((asked.partition, asked) for asked in topic.partitions)
    request.topics = []
    topics: list[FetchRequest.FetchTopic] = []
    room = TURN_PARTITIONS
    for (name, topic_id), of_topic in of_topics.items():
        partitions = list(of_topic.values())
        of_topic.clear()
        first = 0
        while first < len(partitions):
            taken = partitions[first : first + room]
            topics.append(FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=taken))
            first += len(taken)
            room -= len(taken)
            if room == 0:
                yield replace(request, max_wait_ms=0, topics=topics)
                topics, room = [], TURN_PARTITIONS
    if topics:
        yield replace(request, max_wait_ms=0, topics=topics)


async def _once(
    requests: list[FetchRequest], version: int, piece: Callable[[FetchRequest, int], Piece]
) -> tuple[list[Buffer], int, bool]:
    """The answer as of now, how many bytes of records it has, and whether it may not wait for more."""
    size, urgent = 0, False
    # A topic may stand there several times: clients go through the list.
    topics = Encoded(FetchResponse, "responses", version)
    for request in requests:
        part = piece(request, size)
        topics.add_from(await _body(part.begin()), len(request.topics))
        size, urgent = part.size, urgent or part.urgent
        await asyncio.sleep(0)
    return encode(FetchResponse(responses=cast(Any, topics)), version), size, urgent


async def _body(outcome: Reply | list[Buffer]) -> list[Buffer]:
    if not isinstance(outcome, Reply):
        return outcome
    if not outcome.done:
        done = asyncio.get_running_loop().create_future()
        outcome.deliver = done.set_result
        await done
    failure, outcome.failure = outcome.failure, None
    if failure is not None:
        try:
            raise failure
        finally:
            del failure  # it knows this frame: a circle would wait for the collector, with all that was read
    return cast("list[Buffer]", outcome.response)
