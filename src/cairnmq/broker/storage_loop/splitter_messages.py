"""What the broker and its splitter process say to each other: msgpack values after a 4-byte length.

MESSAGES is the table of them. Both sides dispatch by type, in a table of their own that must name each of theirs
(`splitter_reports`, `splitter_process`); docs/architecture.md draws the sequence.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from enum import Enum

import msgspec
from msgspec import Struct

from cairnmq.settings.topic import LogConfig
from cairnmq.storage.api.reports import Place, Published, QueueSpec, Resume, Round, StartProposal


class Begin(Struct, frozen=True, array_like=True, tag=1):
    """First message. `journals`: those that the broker hosts. `resume`: what a predecessor had split and no checkpoint
    names yet."""

    journal_dir: str
    data_dir: str
    resume: Resume | None
    journals: list[int]
    limits: dict[int, int]
    retention_check_ms: int
    producer_expiration_ms: int
    paused: bool
    fault_point: str | None
    reserve_bytes: int = 0
    checkpoint_ms: int = 5000


class Advance(Struct, frozen=True, array_like=True, tag=2):
    """Journals may be split up to here."""

    limits: dict[int, int]


class TopicSpecs(Struct, frozen=True, array_like=True):
    """Queues of one topic; what they have in common is told once, and held once by the one who is told."""

    topic: str
    topic_id: bytes
    config: LogConfig
    queues: list[tuple[int, int, int]]
    """(queue id, partition, journal)"""


class Specs(Struct, frozen=True, array_like=True, tag=3):
    """Answer to Ask: the queues that exist."""

    topics: list[TopicSpecs]

    @classmethod
    def of(cls, specs: Iterable[QueueSpec]) -> Specs:
        topics: dict[tuple[bytes, int], TopicSpecs] = {}
        for spec in specs:
            same = (spec.topic_id, id(spec.config))  # settings that change meanwhile are a second group
            if same not in topics:
                topics[same] = TopicSpecs(spec.topic, spec.topic_id, spec.config, [])
            topics[same].queues.append((spec.queue_id, spec.partition, spec.journal))
        return cls(list(topics.values()))

    def specs(self) -> list[QueueSpec]:
        return [
            QueueSpec(queue_id, topic.topic, partition, topic.topic_id, topic.config, journal)
            for topic in self.topics
            for queue_id, partition, journal in topic.queues
        ]


class Drop(Struct, frozen=True, array_like=True, tag=4):
    """Deleted queues: (queue id, directory)."""

    queues: list[tuple[int, str]]


class Configure(Struct, frozen=True, array_like=True, tag=5):
    """Settings of a queue changed."""

    spec: QueueSpec


class Pace(Struct, frozen=True, array_like=True, tag=6):
    """Paused for tests and maintenance; urgent when producers wait, or soon will."""

    paused: bool
    urgent: bool


class Finish(Struct, frozen=True, array_like=True, tag=7):
    """Split all that is allowed, checkpoint, say Finished and exit."""

    limits: dict[int, int]


class Seen(Struct, frozen=True, array_like=True, tag=8):
    """The broker reads by this checkpoint now: what it left behind can go."""

    serial: int


class Repair(Struct, frozen=True, array_like=True, tag=9):
    """A read found this file damaged: repair it from the journals, if they still hold its records."""

    queue_id: int
    file: str


class Expiration(Struct, frozen=True, array_like=True, tag=10):
    """Silent producers are forgotten after another time than `Begin` said."""

    producer_ms: int


class Host(Struct, frozen=True, array_like=True, tag=21):
    """The broker hosts a new journal; limits may name it from here on."""

    journal: int


class Ping(Struct, frozen=True, array_like=True, tag=22):
    """To be answered with Pong, after the reports of all that is done by then."""

    number: int


Order = Begin | Advance | Specs | Drop | Configure | Pace | Finish | Seen | Repair | Expiration | Host | Ping


class Ask(Struct, frozen=True, array_like=True, tag=11):
    """Which of these queues exist?"""

    queue_ids: list[int]


class Split(Struct, frozen=True, array_like=True, tag=12):
    """A round is done."""

    round: Round


class Checkpointed(Struct, frozen=True, array_like=True, tag=13):
    """A checkpoint is durable."""

    published: Published
    seconds: float


class Proposals(Struct, frozen=True, array_like=True, tag=14):
    """Log starts that retention would move."""

    starts: list[StartProposal]


class Trouble(Struct, frozen=True, array_like=True, tag=15):
    """Why nothing is split at the moment; None: it is split again."""

    reason: str | None


class Finished(Struct, frozen=True, array_like=True, tag=16):
    """Everything is split and checkpointed; the process exits."""


class Begun(Struct, frozen=True, array_like=True, tag=17):
    """A successor is ready: it knows what its predecessor has split and reported."""


class Damaged(Struct, frozen=True, array_like=True, tag=18):
    """Stored records do not read back; everything else goes on."""

    what: str
    place: Place | None = None


class SyncFailed(Struct, frozen=True, array_like=True, tag=19):
    """A sync of the read disk failed. The process exits; its successor begins at the checkpoint."""

    reason: str


class Repaired(Struct, frozen=True, array_like=True, tag=20):
    """A damaged file is good again; a pack from the next checkpoint on."""

    queue_id: int
    file: str


class Compacted(Struct, frozen=True, array_like=True, tag=30):
    """What compaction has done since this splitter started, and what waits for it."""

    passes: int
    read_bytes: int
    written_bytes: int
    dirty_ratio: float


class Pong(Struct, frozen=True, array_like=True, tag=31):
    """All that was done when this Ping came was reported before."""

    number: int


Report = (
    Pong
    | Compacted
    | Repaired
    | SyncFailed
    | Damaged
    | Begun
    | Ask
    | Split
    | Checkpointed
    | Proposals
    | Trouble
    | Finished
)


class Direction(Enum):
    TO_SPLITTER = "to the splitter"
    TO_BROKER = "to the broker"


MESSAGES: dict[type[Order | Report], tuple[Direction, str]] = {
    Begin: (Direction.TO_SPLITTER, "first of all: directories, journals, limits, and where a successor resumes"),
    Begun: (Direction.TO_BROKER, "a successor knows what its predecessor had split and reported"),
    Ask: (Direction.TO_BROKER, "which of these queues exist; the splitter waits for Specs"),
    Specs: (Direction.TO_SPLITTER, "those that exist; the others are deleted queues"),
    Advance: (Direction.TO_SPLITTER, "journals may be split up to here: synced, and on every replica in sync"),
    Host: (Direction.TO_SPLITTER, "the broker hosts a new journal; limits may name it from here on"),
    Pace: (Direction.TO_SPLITTER, "paused or not; urgent while producers wait, or soon will"),
    Split: (Direction.TO_BROKER, "a round is written: its records are read from packs and segments from now on"),
    Checkpointed: (Direction.TO_BROKER, "a checkpoint is durable; the broker reads by it and removes journal segments"),
    Seen: (Direction.TO_SPLITTER, "the broker reads by this checkpoint; what it replaced is removed"),
    Proposals: (Direction.TO_BROKER, "log starts that retention would move; the broker writes them to the journal"),
    Drop: (Direction.TO_SPLITTER, "these queues are deleted; their files go with the next checkpoint"),
    Configure: (Direction.TO_SPLITTER, "settings of a queue changed"),
    Expiration: (Direction.TO_SPLITTER, "silent producers are forgotten after another time"),
    Damaged: (Direction.TO_BROKER, "stored records do not read back; all else is unaffected"),
    Repair: (Direction.TO_SPLITTER, "a read found this file damaged: repair it from the journals"),
    Repaired: (Direction.TO_BROKER, "it is good again; a pack from the next checkpoint on"),
    Compacted: (Direction.TO_BROKER, "what compaction has done, and what waits for it"),
    Ping: (Direction.TO_SPLITTER, "to be answered with Pong: what is read meanwhile for another replica must be known"),
    Pong: (Direction.TO_BROKER, "all that was done by then was reported before"),
    Trouble: (Direction.TO_BROKER, "why nothing is split at the moment; None: it is split again"),
    SyncFailed: (Direction.TO_BROKER, "a sync failed: the process ends, its successor begins at the checkpoint"),
    Finish: (Direction.TO_SPLITTER, "split all that is allowed, checkpoint, end"),
    Finished: (Direction.TO_BROKER, "that is done; the process ends"),
}

encode = msgspec.msgpack.Encoder().encode
_orders: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
_reports: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)


def framed(message: Order | Report) -> bytes:
    payload = encode(message)
    return len(payload).to_bytes(4, "big") + payload


class Inbox:
    """Collects bytes and gives whole payloads."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        self._data += data
        whole = []
        while len(self._data) >= 4:
            size = int.from_bytes(self._data[:4], "big")
            if len(self._data) < 4 + size:
                break
            whole.append(bytes(self._data[4 : 4 + size]))
            del self._data[: 4 + size]
        return whole


def orders(payloads: list[bytes]) -> list[Order]:
    return [_orders.decode(payload) for payload in payloads]


def reports(payloads: list[bytes]) -> list[Report]:
    return [_reports.decode(payload) for payload in payloads]


def pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, 1 << 20)
    return ours, theirs
