"""Fetch sessions (KIP-227): what a client asked for once; later requests and answers name only changes. Pure."""

from __future__ import annotations

from collections.abc import Callable

from cairnmq.broker.requests.fetch_rows import Found
from cairnmq.errors import ErrorCode
from cairnmq.metadata.image import Image
from cairnmq.wire.messages import FetchRequest, FetchResponse

FULL = 0
CLOSE = -1
EPOCH_MAX = 0x7FFFFFFF

Key = tuple[str, bytes, int]  # topic name (or ""), topic id (or zeros), partition


class Wanted:
    """One partition of a session: what is asked of it, and what the client was last told about it."""

    __slots__ = ("topic", "topic_id", "asked", "told", "queue", "image")

    def __init__(self, topic: FetchRequest.FetchTopic, asked: FetchRequest.FetchPartition) -> None:
        self.topic = topic.topic
        self.topic_id = topic.topic_id
        self.told: tuple[int, int] | None = None  # (high watermark, log start)
        self.queue: Found = ErrorCode.NONE
        self.update(asked)

    def update(self, asked: FetchRequest.FetchPartition) -> None:
        self.asked = asked
        self.image: Image | None = None  # by which `queue` was found

    @property
    def key(self) -> Key:
        return self.topic, self.topic_id, self.asked.partition


class Session:
    """Partitions in the order in which they are served; those that gave data go to the end, so that all get a turn.
    `terms`: those of the leadership by which their queues were found."""

    __slots__ = ("session_id", "epoch", "wanted", "by_id", "used_ms", "terms")

    def __init__(self, session_id: int, by_id: bool) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.wanted: dict[Key, Wanted] = {}
        self.by_id = by_id
        self.used_ms = 0
        self.terms = -1

    def change(self, request: FetchRequest) -> None:
        for topic in request.topics:
            for asked in topic.partitions:
                key = (topic.topic, topic.topic_id, asked.partition)
                known = self.wanted.get(key)
                if known is None:
                    self.wanted[key] = Wanted(topic, asked)
                else:
                    known.update(asked)
        for forgotten in request.forgotten_topics_data:
            for partition in forgotten.partitions:
                self.wanted.pop((forgotten.topic, forgotten.topic_id, partition), None)

    def rotate(self, served: Wanted) -> None:
        self.wanted[served.key] = self.wanted.pop(served.key)


class Plan:
    """What one fetch request is to read: `asked`, which are either those of a session (`wanted`) or, when the client
    wants or gets none, those of its `topics`."""

    __slots__ = ("asked", "topics", "wanted", "session", "incremental")

    def __init__(self, topics: list[FetchRequest.FetchTopic], session: Session | None, incremental: bool) -> None:
        self.topics = topics
        self.session = session
        self.incremental = incremental
        self.wanted: list[Wanted] = []
        if session is not None:
            self.wanted.extend(session.wanted.values())
            self.asked = [wanted.asked for wanted in self.wanted]
        elif len(topics) == 1:
            self.asked = topics[0].partitions
        else:
            self.asked = [asked for topic in topics for asked in topic.partitions]

    @property
    def session_id(self) -> int:
        return self.session.session_id if self.session is not None else 0

    def leaves_out(self, wanted: Wanted, answer: FetchResponse.PartitionData) -> bool:
        """An incremental answer names only partitions with data, an error (or a diverging epoch, which is one), another
        broker to read from, or news about their ends."""
        told = (answer.high_watermark, answer.log_start_offset)
        changed = told != wanted.told
        wrong = bool(answer.error_code) or answer.diverging_epoch.end_offset >= 0
        wanted.told = told if not wrong else None
        is_news = changed or wrong or answer.preferred_read_replica >= 0
        return self.incremental and not answer.records and not is_news


class FetchSessions:
    """All sessions of this broker, at most `slots`; the one unused for longest makes room when it is old enough.

    Together they hold at most `partitions_max` partitions. Who would exceed that fetches without a session.
    """

    EVICT_MS = 120_000

    def __init__(self, new_id: Callable[[], int]) -> None:
        self._new_id = new_id  # a random positive 31-bit number
        self.sessions: dict[int, Session] = {}
        self.partitions_max = 100_000
        self.partitions = 0

    def plan(self, request: FetchRequest, version: int, slots: int, now_ms: int) -> Plan | ErrorCode:
        by_id = version >= 13
        if request.session_epoch in (FULL, CLOSE) or version < 7:
            if request.session_id and version >= 7:
                self._forget(request.session_id)
            count = sum(len(topic.partitions) for topic in request.topics)
            if request.session_epoch == CLOSE or version < 7 or not self._room(slots, count, now_ms):
                return Plan(request.topics, None, False)
            session = Session(self._free_id(), by_id)
            session.change(request)
            session.used_ms = now_ms
            self.sessions[session.session_id] = session
            self.partitions += len(session.wanted)
            return Plan([], session, False)
        found = self.sessions.get(request.session_id)
        if found is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if found.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if found.by_id != by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        found.epoch = 1 if found.epoch == EPOCH_MAX else found.epoch + 1
        found.used_ms = now_ms
        before = len(found.wanted)
        found.change(request)
        self.partitions += len(found.wanted) - before
        if self.partitions > self.partitions_max and len(found.wanted) > before:
            self._forget(found.session_id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND  # the client asks again for everything, and gets no session
        return Plan([], found, True)

    def _room(self, slots: int, partitions: int, now_ms: int) -> bool:
        if not slots or partitions > self.partitions_max:
            return False
        while len(self.sessions) >= slots or self.partitions + partitions > self.partitions_max:
            oldest = min(self.sessions.values(), key=lambda session: session.used_ms, default=None)
            if oldest is None or now_ms - oldest.used_ms < self.EVICT_MS:
                return False
            self._forget(oldest.session_id)
        return True

    def _forget(self, session_id: int) -> None:
        session = self.sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= len(session.wanted)

    def _free_id(self) -> int:
        while (number := self._new_id()) in self.sessions or number <= 0:
            pass
        return number
