"""Plans for transactions. Pure; session.py says what a plan is."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cairnmq.client.errors import ClientError, Refused
from cairnmq.client.session import TRANSACTION, Ask, Plan, Session
from cairnmq.errors import ErrorCode
from cairnmq.types import TopicPartition
from cairnmq.wire.messages import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

ONGOING = "Ongoing"


class Transaction(Struct, frozen=True):
    """All that is needed to end it: any process may."""

    transactional_id: str
    producer_id: int
    epoch: int


class OpenTransaction(Struct, frozen=True):
    """One that the broker waits for the end of; it aborts it by itself when its time is over."""

    transaction: Transaction
    start_ms: int
    timeout_ms: int


def begin(session: Session, transactional_id: str, timeout_ms: int) -> Plan[Transaction]:
    """Nothing is open until the first batch comes."""

    def attempt() -> Plan[Transaction]:
        node = yield from session.coordinator(transactional_id, TRANSACTION)
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        answer = yield from session.ask(node, request, InitProducerIdResponse)
        if answer.error_code:
            raise Refused(answer.error_code, f"transactional id {transactional_id}")
        return Transaction(transactional_id, answer.producer_id, answer.producer_epoch)

    return (yield from session.retrying(attempt))


def end(session: Session, transaction: Transaction, *, commit: bool) -> Plan[Transaction]:
    """Ending it the same way twice is harmless. Gives the producer's next one: newer brokers give it another epoch."""

    def attempt() -> Plan[Transaction]:
        node = yield from session.coordinator(transaction.transactional_id, TRANSACTION)
        request = EndTxnRequest(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            committed=commit,
        )
        answer = yield from session.ask(node, request, EndTxnResponse)
        if answer.error_code:
            raise Refused(answer.error_code, f"transaction {transaction.transactional_id}")
        if answer.producer_id < 0:
            return transaction
        return Transaction(transaction.transactional_id, answer.producer_id, answer.producer_epoch)

    return (yield from session.retrying(attempt))


class ListedTransaction(Struct, frozen=True):
    transactional_id: str
    coordinator: int
    state: str
    producer_id: int


class TransactionDescription(Struct, frozen=True):
    """`start_ms` is -1 unless a transaction is open."""

    transaction: Transaction
    coordinator: int
    state: str
    start_ms: int
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]


def list_all(session: Session, states: Sequence[str] = ()) -> Plan[list[ListedTransaction]]:
    """The transactional ids of every broker, by name."""
    request = ListTransactionsRequest(state_filters=list(states))

    def attempt() -> Plan[list[ListedTransaction]]:
        yield from session.metadata([])
        nodes = list(session.nodes)
        answers = yield from session.ask_all([Ask(node, request) for node in nodes], ListTransactionsResponse)
        found = []
        for node, answer in zip(nodes, answers, strict=True):
            if answer.error_code:
                raise Refused(answer.error_code, "transactions")
            if answer.unknown_state_filters:
                unknown = ", ".join(answer.unknown_state_filters)
                raise ClientError(f"the broker does not support transaction state {unknown}")
            for row in answer.transaction_states:
                found.append(ListedTransaction(row.transactional_id, node, row.transaction_state, row.producer_id))
        return sorted(found, key=lambda listed: listed.transactional_id)

    return (yield from session.retrying(attempt))


def describe(session: Session, transactional_id: str) -> Plan[TransactionDescription]:
    """Refused with TRANSACTIONAL_ID_NOT_FOUND if there is none."""

    def attempt() -> Plan[TransactionDescription]:
        node = yield from session.coordinator(transactional_id, TRANSACTION)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        answer = yield from session.ask(node, request, DescribeTransactionsResponse)
        (row,) = answer.transaction_states
        if row.error_code:
            raise Refused(row.error_code, f"transactional id {transactional_id}")
        return TransactionDescription(
            Transaction(row.transactional_id, row.producer_id, row.producer_epoch),
            node,
            row.transaction_state,
            row.transaction_start_time_ms,
            row.transaction_timeout_ms,
            tuple(TopicPartition(each.topic, index) for each in row.topics for index in sorted(each.partitions)),
        )

    return (yield from session.retrying(attempt))


def list_open(session: Session, prefix: str) -> Plan[list[OpenTransaction]]:
    """By transactional id; of every broker."""

    def attempt() -> Plan[list[OpenTransaction]]:
        yield from session.metadata([])
        request = ListTransactionsRequest(state_filters=[ONGOING])
        found: list[OpenTransaction] = []
        for node in session.nodes:
            answer = yield from session.ask(node, request, ListTransactionsResponse)
            if answer.error_code:
                raise Refused(answer.error_code, "transactions")
            ids = [row.transactional_id for row in answer.transaction_states]
            wanted = sorted(each for each in ids if each.startswith(prefix))
            if not wanted:
                continue
            described = DescribeTransactionsRequest(transactional_ids=wanted)
            details = yield from session.ask(node, described, DescribeTransactionsResponse)
            for row in details.transaction_states:
                if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    continue  # it has ended since, and is forgotten
                if row.error_code:
                    raise Refused(row.error_code, f"transactional id {row.transactional_id}")
                if row.transaction_state == ONGOING:
                    own = Transaction(row.transactional_id, row.producer_id, row.producer_epoch)
                    found.append(OpenTransaction(own, row.transaction_start_time_ms, row.transaction_timeout_ms))
        return found

    return (yield from session.retrying(attempt))
