"""OffsetCommit, and TxnOffsetCommit: offsets that become a group's when the producer's transaction commits.

Versions end here: `groups` decides about positions and knows nothing of what older clients understand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec.structs import replace

from cairnmq.errors import ErrorCode
from cairnmq.groups.offset_messages import OffsetCommit, Position
from cairnmq.transactions.messages import Add, Producer
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.internal_transactions import Enter
from cairnmq.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from cairnmq.broker.cluster.transaction_routes import TransactionRoutes
    from cairnmq.broker.context import Context
    from cairnmq.broker.coordination.coordinator import Coordinator
    from cairnmq.broker.coordination.transaction_coordinator import TransactionCoordinator
    from cairnmq.metadata.image import Image

# Of OffsetCommit.
_EPOCHS_FROM = 9  # of the consumer protocol; with them clients learned that there may be no such group
_BY_ID_FROM = 10
# Of TxnOffsetCommit.
_ABORTABLE_FROM = 4
_ADDS_GROUP_FROM = 5
_ASKED_IN_VAIN = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
)
_AS_OFFSET_COMMIT_FROM = 6  # topics by their ids, and the errors of OffsetCommit (KIP-1319)


class _Row(Protocol):
    """A partition in a response."""

    error_code: int


R = TypeVar("R", bound=_Row)
T = TypeVar("T")


async def commit(ctx: Context, header: RequestHeader, request: OffsetCommitRequest) -> OffsetCommitResponse:
    version = header.api_version
    topics, positions, rows = _split(
        ctx.catalog.image,
        request.topics,
        by_id=version >= _BY_ID_FROM,
        topic_row=OffsetCommitResponse.OffsetCommitResponseTopic,
        row=OffsetCommitResponse.OffsetCommitResponsePartition,
    )
    command = OffsetCommit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        positions,
        retention_ms=request.retention_time_ms,
        knows_epochs=version >= _EPOCHS_FROM,
    )
    coordinator = ctx.coordinators.of_group(request.group_id)
    if isinstance(coordinator, ErrorCode):
        for topic in topics:
            _refuse(topic.partitions, coordinator)
        return OffsetCommitResponse(topics=topics)
    told = await coordinator.commit(command)
    for row, error in zip(rows, told.errors, strict=True):
        missing = error is ErrorCode.GROUP_ID_NOT_FOUND and version < _EPOCHS_FROM
        row.error_code = ErrorCode.ILLEGAL_GENERATION if missing else error
    return OffsetCommitResponse(topics=topics)


async def commit_in_transaction(
    ctx: Context, header: RequestHeader, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    version = header.api_version
    command = OffsetCommit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
    )
    coordinator = ctx.coordinators.of_group(request.group_id)
    transactions = ctx.coordinators.of_transaction(request.transactional_id)
    routes = ctx.transactions if transactions is ErrorCode.NOT_COORDINATOR else None
    if isinstance(transactions, ErrorCode) and routes is None:
        return _refused_in_transaction(ctx, version, request, transactions)
    if isinstance(coordinator, ErrorCode):
        return _refused_in_transaction(ctx, version, request, coordinator)
    if isinstance(transactions, ErrorCode):
        assert routes is not None
        return await _commit_asked(ctx, routes, coordinator, version, request, command)
    refused = await _admission(coordinator, transactions, version, request, command)
    command = replace(command, coordinator_epoch=transactions.epoch)
    return await _stored(ctx, coordinator, version, request, command, refused)


async def _commit_asked(
    ctx: Context,
    routes: TransactionRoutes,
    coordinator: Coordinator,
    version: int,
    request: TxnOffsetCommitRequest,
    command: OffsetCommit,
) -> TxnOffsetCommitResponse:
    """The transaction's coordinator is another broker. Nothing may overtake its answer until this is decided (R27)."""
    error = _malformed(request) or coordinator.commit_error(command)
    if error:
        return await _stored(ctx, coordinator, version, request, command, _understood(error, version))
    guard = routes.guards.open(request.group_id, Producer(request.producer_id, request.producer_epoch))
    question = Enter(
        request.transactional_id,
        max(request.producer_id, 0),
        max(request.producer_epoch, -1),
        version >= _ADDS_GROUP_FROM,
        groups=[request.group_id],
    )
    try:
        answer = await routes.enter(question)
        error = ErrorCode(answer.error or (answer.errors[0] if answer.errors else 0))
        if error in _ASKED_IN_VAIN or not guard.is_open:
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # to all clients it says: ask this broker again
        error = error or coordinator.commit_error(command)
        command = replace(command, coordinator_epoch=answer.coordinator_epoch)
        storing = _stored(ctx, coordinator, version, request, command, _understood(error, version))
    finally:
        routes.guards.done(guard)
    return await storing


def _stored(
    ctx: Context,
    coordinator: Coordinator,
    version: int,
    request: TxnOffsetCommitRequest,
    command: OffsetCommit,
    refused: ErrorCode,
) -> Awaitable[TxnOffsetCommitResponse]:
    """Decides in this turn of the loop; the response comes when it is stored."""
    topics, positions, rows = _split_in_transaction(ctx, version, request)
    storing = None if refused else coordinator.commit(replace(command, positions=positions))

    async def respond() -> TxnOffsetCommitResponse:
        errors: Sequence[ErrorCode] = [refused] * len(rows) if storing is None else (await storing).errors
        for row, error in zip(rows, errors, strict=True):
            row.error_code = error
        return TxnOffsetCommitResponse(topics=topics)

    return respond()


def _malformed(request: TxnOffsetCommitRequest) -> ErrorCode:
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE if request.group_id else ErrorCode.INVALID_GROUP_ID


def _refused_in_transaction(
    ctx: Context, version: int, request: TxnOffsetCommitRequest, code: ErrorCode
) -> TxnOffsetCommitResponse:
    topics, _, _ = _split_in_transaction(ctx, version, request)
    for topic in topics:
        _refuse(topic.partitions, code)
    return TxnOffsetCommitResponse(topics=topics)


def _split_in_transaction(
    ctx: Context, version: int, request: TxnOffsetCommitRequest
) -> tuple[
    list[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic],
    list[Position],
    list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition],
]:
    return _split(
        ctx.catalog.image,
        request.topics,
        by_id=version >= _AS_OFFSET_COMMIT_FROM,
        topic_row=TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic,
        row=TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition,
    )


def _refuse(rows: Sequence[_Row], code: ErrorCode) -> None:
    for row in rows:
        row.error_code = code


def _split(
    image: Image,
    asked: Sequence[OffsetCommitRequest.OffsetCommitRequestTopic]
    | Sequence[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic],
    *,
    by_id: bool,
    topic_row: Callable[..., T],
    row: Callable[..., R],
) -> tuple[list[T], list[Position], list[R]]:
    """The response's topics; the positions in partitions that exist, and the rows that wait for what is decided."""
    topics: list[T] = []
    positions: list[Position] = []
    waiting: list[R] = []
    for named in asked:
        topic = image.topic_by_id(named.topic_id) if by_id else image.topic(named.name)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id and topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        rows: list[R] = []
        for wanted in named.partitions:
            index = wanted.partition_index
            one = row(partition_index=index)
            rows.append(one)
            if topic is None or topic.queue_id(index) is None:
                one.error_code = unknown
                continue
            waiting.append(one)
            metadata = wanted.committed_metadata or ""
            positions.append(
                Position(topic.topic_id, index, wanted.committed_offset, wanted.committed_leader_epoch, metadata)
            )
        topics.append(topic_row(name=named.name, topic_id=named.topic_id, partitions=rows))
    return topics, positions, waiting


async def _admission(
    coordinator: Coordinator,
    transactions: TransactionCoordinator,
    version: int,
    request: TxnOffsetCommitRequest,
    command: OffsetCommit,
) -> ErrorCode:
    """Whether this producer may commit offsets of this group, and this member; holds for this turn of the loop."""
    if malformed := _malformed(request):
        return malformed
    producer = Producer(request.producer_id, request.producer_epoch)
    error = coordinator.commit_error(command)
    if version >= _ADDS_GROUP_FROM and not error:
        error = await transactions.added(Add(request.transactional_id, producer, groups=(request.group_id,)))
        error = error or coordinator.commit_error(command)  # it may have left meanwhile
    error = error or transactions.core.verify(request.transactional_id, producer, group=request.group_id)
    return _understood(error, version)


def _understood(error: ErrorCode, version: int) -> ErrorCode:
    """The error as producers of a version know it. Before version 6 they know none that only the consumer protocol has,
    and none of a missing group: told 113 they give up for good; after 22 they abort and go on."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and version < _ADDS_GROUP_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE  # older clients know no better code that says: try again
    if error is ErrorCode.INVALID_TXN_STATE and version >= _ABORTABLE_FROM:
        return ErrorCode.TRANSACTION_ABORTABLE
    if error in (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND) and version < _AS_OFFSET_COMMIT_FROM:
        return ErrorCode.ILLEGAL_GENERATION
    return error
