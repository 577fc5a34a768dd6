"""What a produce request waits for once its batches are appended, and what its partitions are told then: stored as its
producer wants it, on too few replicas, led elsewhere, or not in time."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from cairnmq.broker.leadership import NotLeader
from cairnmq.broker.requests.deadlines import Deadlines
from cairnmq.broker.requests.reply import CloseConnection, Outcome, Reply
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.storage.api.serving import AckPoint, Queue
from cairnmq.types import Buffer
from cairnmq.wire.codec import encode
from cairnmq.wire.messages import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

PartitionResponse: TypeAlias = ProduceResponse.PartitionProduceResponse

HINTS_SINCE = 10
ALL = -1  # acks
NOT_MARKED = "the journal is being marked as one that acknowledges records before they are synced; try again"
NO_LEASE = "another broker may lead it by now: this one stops, or has not reached the metadata store for too long"


class _Wait:
    """Partitions of one request that wait for the same level of the same journal, and the last of their points.
    `min_in_sync`: in a cluster, of those whose topic wants several replicas."""

    __slots__ = ("is_over", "min_in_sync", "point", "responses")

    def __init__(self, point: AckPoint) -> None:
        self.point = point
        self.responses: list[PartitionResponse] = []
        self.min_in_sync: list[tuple[PartitionResponse, int]] | None = None
        self.is_over = False

    def fail(self, code: ErrorCode, why: str) -> None:
        for response in self.responses:
            fail(response, code, why)


class ProduceAcks:
    """One request's. `response` is filled by its handler, and completes `reply` if it has to wait."""

    __slots__ = (
        "_deadlines", "_is_cluster", "_is_lost", "_left", "_waits", "ctx", "reply", "request", "response", "version",
    )  # fmt: skip

    def __init__(self, ctx: Context, version: int, request: ProduceRequest, reply: Reply, deadlines: Deadlines) -> None:
        self.ctx = ctx
        self.version = version
        self.request = request
        self.reply = reply
        self.response = ProduceResponse()
        self._deadlines = deadlines
        self._is_cluster = ctx.leadership.is_cluster
        self._waits: dict[tuple[int, int], _Wait] = {}
        self._is_lost = False  # acks=0, and what was appended may be in no journal: another broker leads it

    def refusal(self, queue: Queue) -> Refusal | None:
        """Before the append: too few replicas are in sync, or another broker may lead. Need not be asked on one node
        for a topic that does not want several replicas."""
        leadership = self.ctx.leadership
        if self.request.acks != ALL:
            if leadership.is_cluster and not leadership.may_acknowledge_alone(queue.journal):
                return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_LEASE)
            return None
        wanted, in_sync = queue.config.min_insync_replicas, leadership.in_sync(queue.journal)
        if wanted > in_sync:
            return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, _too_few(wanted, in_sync))
        if leadership.is_cluster and not self.ctx.store.syncs_first(queue):
            if not leadership.admits_unsynced(queue.journal):
                return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, NOT_MARKED)
        return None

    def add(self, queue: Queue, point: AckPoint, response: PartitionResponse) -> None:
        """A batch that was appended."""
        wait = self._waits.get((point.journal, point.level))
        if wait is None:
            wait = self._waits[point.journal, point.level] = _Wait(point)
        elif point.end > wait.point.end:
            wait.point = point
        wait.responses.append(response)
        if self._is_cluster and self.request.acks == ALL and queue.config.min_insync_replicas > 1:
            if wait.min_in_sync is None:
                wait.min_in_sync = []
            wait.min_in_sync.append((response, queue.config.min_insync_replicas))

    def refused(self, index: int, refusal: Refusal) -> PartitionResponse:
        """What a partition is told that took nothing."""
        answer = PartitionResponse(index=index)
        fail(answer, refusal.code, refusal.message)
        if isinstance(refusal, NotLeader):
            self._hint([answer], refusal)
        return answer

    def _hint(self, answers: Iterable[PartitionResponse], refusal: NotLeader) -> None:
        """Who leads instead, and where that broker is (KIP-951)."""
        if self.version < HINTS_SINCE or refusal.leader < 0:
            return
        for answer in answers:
            answer.current_leader = ProduceResponse.LeaderIdAndEpoch(refusal.leader, refusal.epoch)
        broker, known = self.ctx.leadership.broker(refusal.leader), self.response.node_endpoints
        if broker is not None and all(each.node_id != broker.node_id for each in known):
            endpoint = ProduceResponse.NodeEndpoint(broker.node_id, broker.host, broker.port, broker.rack)
            self.response.node_endpoints = [*known, endpoint]

    def encoded(self) -> list[Buffer] | None:
        """The response as it is now."""
        if self._is_lost:
            raise CloseConnection("acks=0, and another broker leads what was sent")
        return encode(self.response, self.version) if self.request.acks else None

    # ------------------------------------------------------------------------------------------------------ waiting

    def wait(self) -> Outcome:
        """Until everything that was added is stored as its producer wants it. With acks=0 there is no response, but
        until they are written the batches are in memory and must count."""
        waits = self._waits.values()
        self._left = len(waits) + 1
        for wait in waits:
            self.ctx.store.when(wait.point, partial(self._reached, wait))
        self._left -= 1
        if self._left == 0:
            return self.encoded()
        if self._is_cluster and self.request.acks == ALL and self.request.timeout_ms >= 0:
            self._deadlines.add(self, self.request.timeout_ms / 1000)
        return self.reply

    def _reached(self, wait: _Wait, met: bool) -> None:
        """What waits for another journal may well be stored, and then its producer must not send it again."""
        self._left -= 1
        wait.is_over = True
        if not met:
            self._fail(wait)
        elif self._is_cluster:
            self._look_again(wait)
        if self._left == 0 and not self.reply.done:
            if not self._is_cluster:
                self.reply.complete(self.encoded())
                return
            self._deadlines.forget(self)
            self.reply.resume(self.encoded)

    def _fail(self, wait: _Wait) -> None:
        """Not all of it was stored, or nobody hears here any more what becomes of it."""
        refusal = self.ctx.leadership.refusal(wait.point.journal)
        if refusal is None:
            wait.fail(ErrorCode.KAFKA_STORAGE_ERROR, "the journal could not store it; see /health/ready")
        else:
            wait.fail(refusal.code, f"{refusal.message}; whether it was stored is not known here")
            self._hint(wait.responses, refusal)
            self._is_lost = not self.request.acks

    def _look_again(self, wait: _Wait) -> None:
        """Stored as its producer wants it. But the ISR may have shrunk meanwhile, or the lease be over."""
        leadership, journal = self.ctx.leadership, wait.point.journal
        if self.request.acks != ALL and not leadership.may_acknowledge_alone(journal):
            wait.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_LEASE)
            self._is_lost = not self.request.acks
        for response, wanted in wait.min_in_sync or ():
            in_sync = leadership.in_sync(journal)
            if wanted > in_sync:
                fail(response, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, _too_few(wanted, in_sync))

    def expire(self) -> None:
        """Its time is up. What is not stored as it wants to be may well be so later."""
        if self.reply.done:
            return
        for wait in self._waits.values():
            if not wait.is_over:
                why = f"not replicated within timeout_ms={self.request.timeout_ms}"
                wait.fail(ErrorCode.REQUEST_TIMED_OUT, why)
        self.reply.resume(self.encoded)


def fail(answer: PartitionResponse, code: ErrorCode, message: str) -> None:
    """The partition's producer is told so."""
    answer.error_code, answer.base_offset, answer.error_message = code, -1, message


def _too_few(wanted: int, in_sync: int) -> str:
    are = "replica is" if in_sync == 1 else "replicas are"
    return f"min.insync.replicas={wanted}, but {in_sync} {are} in sync"
