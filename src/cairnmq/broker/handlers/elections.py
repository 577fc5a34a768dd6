"""ElectLeaders: the first replica of a journal leads again. And ElectUnclean, our own: a replica that may lack records.

Leaders are those of journals, so an election for one partition moves all that share its journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from cairnmq.broker.leadership import NOBODY
from cairnmq.broker.metadata_turn import TimeLimit
from cairnmq.broker.requests.queue_lookup import NO_PARTITION
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.metadata.image import Topic
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectUncleanRequest,
    ElectUncleanResponse,
)

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

Asked: TypeAlias = ElectLeadersRequest.TopicPartitions
Elected: TypeAlias = ElectLeadersResponse.PartitionResult
Result: TypeAlias = ElectLeadersResponse.ReplicaElectionResult
Outcomes: TypeAlias = dict[int, Refusal | None]  # of journals; None: another broker leads now

_PREFERRED, _UNCLEAN = 0, 1
_NOT_NEEDED = ErrorCode.ELECTION_NOT_NEEDED
_UNKNOWN_KIND = Refusal(ErrorCode.INVALID_REQUEST, "the election type is neither 0 (preferred) nor 1 (unclean)")


async def handle(ctx: Context, header: RequestHeader, request: ElectLeadersRequest) -> ElectLeadersResponse:
    kind, asked = request.election_type, request.topic_partitions
    if kind not in (_PREFERRED, _UNCLEAN):
        # Java reads the outcome of each partition, also when the whole request is wrong.
        results = _results(asked or (), lambda topic, partition: _UNKNOWN_KIND)
        return ElectLeadersResponse(error_code=_UNKNOWN_KIND.code, replica_election_results=results)
    if asked is None:
        results = await _elect_all(ctx, TimeLimit(request.timeout_ms)) if kind == _PREFERRED else []
        return ElectLeadersResponse(replica_election_results=results)
    image = ctx.catalog.image
    named = (_journal(image.topic(each.topic), partition) for each in asked for partition in each.partitions)
    journals = dict.fromkeys(journal for journal in named if journal is not None)
    if kind == _PREFERRED:
        outcomes = await _elect(ctx, journals, TimeLimit(request.timeout_ms))
    else:
        outcomes = {journal: _why_not_unclean(ctx, journal) for journal in journals}

    def outcome(topic: str, partition: int) -> Refusal | None:
        journal = _journal(image.topic(topic), partition)
        return NO_PARTITION if journal is None else outcomes[journal]

    return ElectLeadersResponse(replica_election_results=_results(asked, outcome))


def _results(asked: Iterable[Asked], outcome: Callable[[str, int], Refusal | None]) -> list[Result]:
    return [
        Result(
            topic=each.topic,
            partition_result=[_told(partition, outcome(each.topic, partition)) for partition in each.partitions],
        )
        for each in asked
    ]


def _journal(topic: Topic | None, partition: int) -> int | None:
    return None if topic is None else topic.journal_of(partition)


async def _elect(ctx: Context, journals: Iterable[int], limit: TimeLimit) -> Outcomes:
    return {journal: await _in_time(ctx.elections.preferred, journal, limit) for journal in journals}


async def _in_time(elect: Callable[[int], Awaitable[Refusal | None]], journal: int, limit: TimeLimit) -> Refusal | None:
    """A change that is on its way is seen in the metadata, whatever became of it."""
    if not limit.left:
        return limit.refusal(is_begun=False)
    try:
        async with asyncio.timeout(limit.left):
            return await elect(journal)
    except TimeoutError:
        limit.run_out()
        return limit.refusal(is_begun=True)


async def _elect_all(ctx: Context, limit: TimeLimit) -> list[Result]:
    """Asked for all partitions, Kafka names only those whose leader changed or could not change."""
    views = ctx.leadership.views.items()
    outcomes = await _elect(
        ctx, [journal for journal, view in views if view.replicas and view.leader != view.replicas[0]], limit
    )
    changed = {journal for journal, refusal in outcomes.items() if refusal is None or refusal.code != _NOT_NEEDED}
    results = []
    if changed:
        for name, topic in sorted(ctx.catalog.image.topics.items()):
            told = [
                _told(partition, outcomes[journal]) for partition, _, journal in topic.places() if journal in changed
            ]
            if told:
                results.append(Result(topic=name, partition_result=told))
    return results


def _why_not_unclean(ctx: Context, journal: int) -> Refusal:
    """Who asks for it must be told what may be lost, for which Kafka's request has no room."""
    leader = ctx.leadership.view(journal).leader
    if leader != NOBODY:
        return Refusal(_NOT_NEEDED, _leads(ctx, leader))
    why = f"journal {journal} has no leader; `cairn cluster elect --unclean {journal}` says what may be lost, and asks"
    return Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, why)


def _leads(ctx: Context, leader: int) -> str:
    return f"broker {leader} is already the leader" + ("" if ctx.leadership.is_cluster else " and the only replica")


def _told(partition: int, refusal: Refusal | None) -> Elected:
    if refusal is None:
        return Elected(partition_id=partition, error_code=ErrorCode.NONE, error_message=None)
    return Elected(partition_id=partition, error_code=refusal.code, error_message=refusal.message)


async def elect_unclean(ctx: Context, header: RequestHeader, request: ElectUncleanRequest) -> ElectUncleanResponse:
    """Of a person who was told what may be lost. One after another: each is a decision of its own."""
    results, limit = [], TimeLimit(request.timeout_ms)
    for journal in dict.fromkeys(request.journals):
        if journal not in ctx.leadership.views:
            refusal: Refusal | None = Refusal(ErrorCode.RESOURCE_NOT_FOUND, "there is no such journal")
        else:
            refusal = await _in_time(ctx.elections.unclean, journal, limit)
        code, why = (ErrorCode.NONE, None) if refusal is None else (refusal.code, refusal.message)
        results.append(ElectUncleanResponse.ElectUncleanResult(journal=journal, error_code=code, error_message=why))
    return ElectUncleanResponse(results=results)
