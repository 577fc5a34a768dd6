"""Messages between brokers and their bytes (docs/internal-protocol.md); nothing of it is Kafka's.

A frame is: 4-byte length of what follows, 1-byte kind, 4-byte correlation id, 4-byte header length, the header, raw
bytes. Headers are msgpack arrays: a field is only ever appended, with a default. Numbers are big-endian.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from cairnmq.types import Buffer
from cairnmq.wire.primitives import Malformed

VERSION_MIN, VERSION_MAX = 1, 1  # of these messages, as this program speaks them

_PREFIX = struct.Struct(">IBII")
PREFIX_BYTES = _PREFIX.size
_LENGTH_BYTES = 4
HELLO_BYTES_MAX = 4096  # of a header before the other side has proved that it belongs to the cluster
HEADER_BYTES_MAX = 1 << 20
RAW_BYTES_MAX = 1 << 27  # of one response: no more may be asked for
IN_FLIGHT_MAX = 2  # requests of one link
CONTROL_IN_FLIGHT_MAX = 64  # of one for control
TEXT_MAX = 1024

DATA, CONTROL, INSTALL = "data", "control", "install"
PURPOSES = (DATA, CONTROL, INSTALL)

NATURAL_MAX = (1 << 63) - 1
Natural: TypeAlias = Annotated[int, Meta(ge=0, le=NATURAL_MAX)]
BrokerId: TypeAlias = Annotated[int, Meta(ge=-1, le=(1 << 31) - 1)]
Text: TypeAlias = Annotated[str, Meta(max_length=TEXT_MAX)]
Nonce: TypeAlias = Annotated[bytes, Meta(min_length=16, max_length=64)]
Proof: TypeAlias = Annotated[bytes, Meta(max_length=64)]

ANY_BROKER = -1


class Kind(IntEnum):
    """What a frame is. Numbers are never used again for something else."""

    HELLO = 1
    PROVE = 2
    WELCOME = 3
    FAILED = 4
    FETCH = 16
    FETCHED = 17
    INSTALL = 24
    INSTALLED = 25
    ENTER = 32
    ENTERED = 33
    MARKERS = 34
    MARKED = 35
    END_OFFSETS = 36
    OFFSETS_ENDED = 37


class Failure(IntEnum):
    """Why a link or a request was refused."""

    MALFORMED = 1
    UNKNOWN_KIND = 2
    OTHER_CLUSTER = 3
    OTHER_BROKER = 4  # not the one that was meant
    NO_COMMON_VERSION = 5
    SECRET_MISSING = 6
    SECRET_WRONG = 7
    OLDER_LINK = 8
    TOO_MANY_LINKS = 9
    TOO_MANY_REQUESTS = 10
    NOT_SERVED = 11
    INTERNAL = 12
    CLOSING = 13


class Hello(Struct, frozen=True, array_like=True):
    """The first frame of each side. The accepting side repeats link number and purpose. `to`: the broker that is meant
    to be at this address."""

    cluster_id: Text
    broker: BrokerId
    broker_epoch: Natural
    link_number: Natural
    purpose: Text
    min_version: Natural
    max_version: Natural
    nonce: Nonce
    to: BrokerId = ANY_BROKER


class Prove(Struct, frozen=True, array_like=True):
    """The connecting side knows the cluster's secret; empty without one."""

    proof: Proof = b""


class Welcome(Struct, frozen=True, array_like=True):
    """The accepting side knows it too. From here on frames are of this version."""

    version: Natural
    proof: Proof = b""


class Failed(Struct, frozen=True, array_like=True):
    """To a request; correlation id 0: the link itself was refused, and ends."""

    code: int
    text: Text


class JournalAsk(Struct, frozen=True, array_like=True, gc=False):
    """One journal's `FetchPosition`."""

    journal: Natural
    follower: BrokerId
    follower_epoch: Natural
    epoch: Natural
    end: Natural
    last_epoch: Natural
    synced: Natural
    echo_ms: Natural = 0
    split_backlog_bytes: Natural = 0
    free_bytes: Natural = NATURAL_MAX
    split_backlog_percent: Natural = 0
    checkpointed: Natural = 0
    has_readers: bool = False


class ReplicaFetch(Struct, frozen=True, array_like=True):
    """A follower asks one leader for all journals that it follows there. At most `max_bytes` raw bytes come back."""

    wait_ms: Annotated[int, Meta(ge=0, le=60_000)]
    max_bytes: Annotated[int, Meta(ge=0, le=RAW_BYTES_MAX)]
    journals: Annotated[list[JournalAsk], Meta(max_length=4096)]


class AcceptedTold(Struct, frozen=True, array_like=True, tag=0, gc=False):
    """`Accepted`."""

    replicated_end: Natural
    durable_end: Natural
    sync: bool
    sent_ms: Natural
    keep_from: Natural = 0


class DivergingTold(Struct, frozen=True, array_like=True, tag=1, gc=False):
    """`Diverging`."""

    epoch: Natural
    end: Natural


class GoneTold(Struct, frozen=True, array_like=True, tag=2, gc=False):
    """`Gone`."""

    first: Natural


class FencedTold(Struct, frozen=True, array_like=True, tag=3, gc=False):
    """`FencedEpoch`."""

    epoch: Natural


class UnknownEpochTold(Struct, frozen=True, array_like=True, tag=4, gc=False):
    """`UnknownEpoch`."""


class StaleBrokerTold(Struct, frozen=True, array_like=True, tag=5, gc=False):
    """`StaleBroker`."""


class NotLeader(Struct, frozen=True, array_like=True, tag=6, gc=False):
    """This broker does not lead the journal. `epoch`: the latest of the journal that it knows."""

    epoch: Natural = 0


Told: TypeAlias = AcceptedTold | DivergingTold | GoneTold | FencedTold | UnknownEpochTold | StaleBrokerTold | NotLeader


class JournalTold(Struct, frozen=True, array_like=True):
    """What the leader says about one journal; the next `size` raw bytes of the frame belong to it."""

    journal: Natural
    reply: Told
    size: Annotated[int, Meta(ge=0, le=RAW_BYTES_MAX)] = 0


class ReplicaFetched(Struct, frozen=True, array_like=True):
    """Response to `ReplicaFetch`. Without journals: a later request took its place."""

    journals: Annotated[list[JournalTold], Meta(max_length=4096)]


INSTALL_RUNS_MAX = 4096


class InstallAsk(Struct, frozen=True, array_like=True, gc=False):
    """A follower takes a journal over as its leader has it. `install` 0: begin. Then `piece` by piece the rows, and
    with `piece` 0 the batches from this queue and offset on."""

    journal: Natural
    follower: BrokerId
    follower_epoch: Natural
    epoch: Natural
    install: Natural = 0
    piece: Natural = 0
    queue: Natural = 0
    offset: Natural = 0
    max_bytes: Annotated[int, Meta(ge=0, le=RAW_BYTES_MAX)] = 0


class InstallBegun(Struct, frozen=True, array_like=True, tag=0, gc=False):
    """The leader holds the journal from `split` on. `epoch`: of the entry before it; `seed`: of the checksums."""

    install: Natural
    split: Natural
    epoch: Natural
    seed: Natural
    pieces: Natural
    records: Natural  # of all queues


class InstallPiece(Struct, frozen=True, array_like=True, tag=1, gc=False):
    """The raw bytes are this piece of the rows, in the form of a checkpoint."""


class InstallRun(Struct, frozen=True, array_like=True, gc=False):
    """Batches of one queue from the one that holds `offset` on: the next `size` raw bytes. `rewrites`: of a compacted
    queue; another number than before: it comes again from its log start. With the last run come `aborted_size` bytes
    with the queue's aborted transactions. `is_gone`: it was deleted."""

    queue: Natural
    offset: Natural
    next_offset: Natural
    log_start: Natural
    rewrites: Natural = 0
    size: Annotated[int, Meta(ge=0, le=RAW_BYTES_MAX)] = 0
    aborted_size: Annotated[int, Meta(ge=0, le=RAW_BYTES_MAX)] = 0
    is_last: bool = False
    is_gone: bool = False


class InstallRuns(Struct, frozen=True, array_like=True, tag=2):
    """`is_last`: there is no more."""

    runs: Annotated[list[InstallRun], Meta(max_length=INSTALL_RUNS_MAX)]
    is_last: bool = False


class InstallRefused(Struct, frozen=True, array_like=True, tag=3, gc=False):
    """Begin again, perhaps with another leader, or when the reason is gone."""

    reason: Text


class InstallTold(Struct, frozen=True, array_like=True):
    """Response to `InstallAsk`."""

    told: InstallBegun | InstallPiece | InstallRuns | InstallRefused


M = TypeVar("M", bound=Struct)

encode = msgspec.msgpack.Encoder().encode
_DECODERS: dict[type[Struct], msgspec.msgpack.Decoder[Struct]] = {
    message: msgspec.msgpack.Decoder(message)
    for message in (Hello, Prove, Welcome, Failed, ReplicaFetch, ReplicaFetched, InstallAsk, InstallTold)
}


def decode(message: type[M], header: Buffer) -> M:
    """The header of a frame as this message."""
    try:
        return _DECODERS[message].decode(header)  # type: ignore[return-value]  # the table has it under its own type
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"{message.__name__}: {error}") from error


def frame_head(kind: int, correlation: int, header: bytes, raw_bytes: int = 0) -> bytes:
    """A frame but for its raw bytes, which follow."""
    length = PREFIX_BYTES - _LENGTH_BYTES + len(header) + raw_bytes
    return _PREFIX.pack(length, kind, correlation, len(header)) + header


class Prefix(Struct, frozen=True, gc=False):
    """The beginning of a frame: all that is needed to bound what follows."""

    kind: int
    correlation: int
    header_bytes: int
    raw_bytes: int


def read_prefix(data: Buffer) -> Prefix:
    """Of the first `PREFIX_BYTES` of a frame."""
    length, kind, correlation, header_bytes = _PREFIX.unpack_from(data)
    raw_bytes = length - (PREFIX_BYTES - _LENGTH_BYTES) - header_bytes
    if raw_bytes < 0:
        raise Malformed(f"a frame of {length} bytes cannot hold a header of {header_bytes}")
    return Prefix(kind, correlation, header_bytes, raw_bytes)
