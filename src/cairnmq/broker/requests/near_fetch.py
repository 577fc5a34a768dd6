"""A fetch of a client that says in which rack it is: what of it is read here though another broker leads it, and what
is to be read elsewhere though this one does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cairnmq.broker.leadership import NotLeader
from cairnmq.broker.requests.queue_lookup import followed_queue
from cairnmq.errors import ErrorCode
from cairnmq.metadata.image import Topic
from cairnmq.storage.api.serving import Queue
from cairnmq.types import Caller
from cairnmq.wire.messages import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context
    from cairnmq.broker.requests.fetch_rows import Found

RACKS_SINCE = 11


class Elsewhere(Struct, frozen=True, gc=False):
    """A queue that is led here, and the broker that its reader is told to read it from."""

    queue: Queue
    broker: int

    def fill(self, answer: FetchResponse.PartitionData) -> None:
        """There is nothing wrong, and no record."""
        answer.high_watermark = self.queue.high_watermark
        answer.last_stable_offset = self.queue.last_stable
        answer.log_start_offset = self.queue.log_start
        answer.preferred_read_replica = self.broker


class NearFetch:
    """Of one request. What it finds holds until `is_outdated`."""

    __slots__ = ("_began_ms", "_brokers", "_caller", "_ctx", "_followed", "_is_here", "_nearest", "_rack")

    def __init__(self, ctx: Context, caller: Caller, rack: str) -> None:
        assert ctx.nearest is not None
        self._ctx = ctx
        self._nearest = ctx.nearest
        self._caller = caller
        self._rack = rack
        self._is_here = ctx.nearest.is_rack(rack)
        self._began_ms = ctx.nearest.now_ms()
        self._followed: set[int] = set()  # journals that others lead
        self._brokers: dict[int, list[int]] = {}  # by journal

    @classmethod
    def of(cls, ctx: Context, caller: Caller, request: FetchRequest, version: int) -> NearFetch | None:
        """None: this broker serves what it leads, and nothing else."""
        if ctx.nearest is None or version < RACKS_SINCE or not request.rack_id or not ctx.nearest.is_on:
            return None
        return cls(ctx, caller, request.rack_id)

    def among(self, topic: Topic | None, asked: list[FetchRequest.FetchPartition], found: list[Found]) -> list[Found]:
        """Partitions of a topic, found as for any client."""
        if self._is_here:
            return [
                self._of_follower(topic, one, each) if isinstance(each, NotLeader) else each
                for one, each in zip(asked, found, strict=True)
            ]
        return [
            self._of_leader(one, each) if isinstance(each, Queue) else each
            for one, each in zip(asked, found, strict=True)
        ]

    def _of_follower(self, topic: Topic | None, one: FetchRequest.FetchPartition, refusal: NotLeader) -> Found:
        queue = followed_queue(self._ctx, topic, one.partition)
        if queue is None:
            return refusal
        code = self._nearest.refusal(queue.journal, one.current_leader_epoch)
        if code is ErrorCode.NONE:
            self._followed.add(queue.journal)
            return queue
        self._nearest.sent_back += 1
        return replace(refusal, code=code)

    def _of_leader(self, one: FetchRequest.FetchPartition, queue: Queue) -> Found:
        brokers = self._brokers.get(queue.journal)
        if brokers is None:
            brokers = self._brokers[queue.journal] = self._nearest.elsewhere(queue.journal, self._rack)
        if not brokers or not queue.log_start <= one.fetch_offset <= queue.high_watermark:
            return queue
        if not self._nearest.sends(self._caller.connection, queue.queue_id):
            return queue
        return Elsewhere(queue, brokers[queue.queue_id % len(brokers)])

    @property
    def is_outdated(self) -> bool:
        """Something of what it found is not to be read here any more."""
        return any(self._nearest.refusal(journal) for journal in self._followed)

    def is_ahead(self, queue: Queue, offset: int) -> bool:
        """Whether the reader may have seen at the leader what this follower does not show yet: then it waits. Once this
        broker shows all that was there when the request came, the leader has to say what is wrong with the offset."""
        is_followed = queue.journal in self._followed
        return is_followed and offset > queue.end and not self._nearest.has_all_of(queue.journal, self._began_ms)

    def wait_ms(self, wanted_ms: int) -> int:
        """For how long the request may be parked."""
        return min([wanted_ms, *map(self._nearest.may_wait_ms, self._followed)])

    def gave(self, queue: Queue, size: int) -> None:
        """Records of it went to the client."""
        if queue.journal in self._followed:
            self._nearest.bytes_given += size
