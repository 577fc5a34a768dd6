"""What brokers ask of one another about transactions (docs/transactions.md): enter, markers, end offsets.

These go over control links, many at a time. Errors are Kafka's codes. Fields are only ever appended, with a default.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct

from cairnmq.types import Buffer
from cairnmq.wire.internal import Kind, Natural
from cairnmq.wire.primitives import Malformed

WAIT_MS_MAX = 60_000
QUEUES_MAX = 20_000  # of one message: its header must fit into `HEADER_BYTES_MAX`
MARKERS_MAX = 10_000
NAMES_BYTES_MAX = 256 << 10  # of the names of groups in one message, but for the last

Name: TypeAlias = Annotated[str, Meta(max_length=1 << 15)]
ProducerEpoch: TypeAlias = Annotated[int, Meta(ge=-1, le=(1 << 15) - 1)]
WaitMs: TypeAlias = Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)]


class Enter(Struct, frozen=True, array_like=True):
    """Whether something may be written into a transaction. `adds`: its queues and groups are added first, durably."""

    transactional_id: Name
    producer_id: Natural
    producer_epoch: ProducerEpoch
    adds: bool
    queues: Annotated[list[Natural], Meta(max_length=QUEUES_MAX)] = []
    groups: Annotated[list[Name], Meta(max_length=1)] = []
    wait_ms: WaitMs = 0


class Entered(Struct, frozen=True, array_like=True):
    """`error`: of all; `errors`: of each queue, then of each group, unless there is an error of all."""

    error: int
    coordinator_epoch: int = -1
    errors: list[int] = []


class MarkerAsked(Struct, frozen=True, array_like=True, gc=False):
    """A marker for one queue."""

    queue: Natural
    producer_id: Natural
    producer_epoch: ProducerEpoch
    commit: bool
    coordinator_epoch: Natural
    version: Natural


class JournalMarkers(Struct, frozen=True, array_like=True):
    """Markers for queues of one journal, of its leader in this epoch."""

    journal: Natural
    epoch: Natural
    markers: Annotated[list[MarkerAsked], Meta(max_length=MARKERS_MAX)]


class Markers(Struct, frozen=True, array_like=True):
    """All that one broker leads."""

    wait_ms: WaitMs
    journals: Annotated[list[JournalMarkers], Meta(max_length=4096)]


class Marked(Struct, frozen=True, array_like=True):
    """Response to `Markers`: an error for each, in their order."""

    errors: list[int]


class OffsetsEnd(Struct, frozen=True, array_like=True):
    """What a transaction has committed in one group counts, or is forgotten. `raised`: the epoch is above that of the
    transaction."""

    group: Name
    producer_id: Natural
    producer_epoch: ProducerEpoch
    commit: bool
    raised: bool
    coordinator_epoch: Natural


class JournalEnds(Struct, frozen=True, array_like=True):
    """Ends in groups of one journal, of its leader in this epoch."""

    journal: Natural
    epoch: Natural
    ends: Annotated[list[OffsetsEnd], Meta(max_length=MARKERS_MAX)]


class EndOffsets(Struct, frozen=True, array_like=True):
    """All that one broker coordinates."""

    wait_ms: WaitMs
    journals: Annotated[list[JournalEnds], Meta(max_length=4096)]


class OffsetsEnded(Struct, frozen=True, array_like=True):
    """Response to `EndOffsets`: an error for each, in their order."""

    errors: list[int]


ControlRequest: TypeAlias = Enter | Markers | EndOffsets
ControlResponse: TypeAlias = Entered | Marked | OffsetsEnded

KIND_OF: dict[type[Struct], Kind] = {
    Enter: Kind.ENTER,
    Entered: Kind.ENTERED,
    Markers: Kind.MARKERS,
    Marked: Kind.MARKED,
    EndOffsets: Kind.END_OFFSETS,
    OffsetsEnded: Kind.OFFSETS_ENDED,
}
RESPONSE_TO: dict[Kind, Kind] = {
    Kind.ENTER: Kind.ENTERED,
    Kind.MARKERS: Kind.MARKED,
    Kind.END_OFFSETS: Kind.OFFSETS_ENDED,
}
_REQUESTS: dict[int, msgspec.msgpack.Decoder[ControlRequest]] = {
    Kind.ENTER: msgspec.msgpack.Decoder(Enter),
    Kind.MARKERS: msgspec.msgpack.Decoder(Markers),
    Kind.END_OFFSETS: msgspec.msgpack.Decoder(EndOffsets),
}
_RESPONSES: dict[int, msgspec.msgpack.Decoder[ControlResponse]] = {
    Kind.ENTERED: msgspec.msgpack.Decoder(Entered),
    Kind.MARKED: msgspec.msgpack.Decoder(Marked),
    Kind.OFFSETS_ENDED: msgspec.msgpack.Decoder(OffsetsEnded),
}


def is_control(kind: int) -> bool:
    """Whether frames of this kind are requests of control links."""
    return kind in _REQUESTS


def decode_request(kind: int, header: Buffer) -> ControlRequest:
    """Of a kind that `is_control`."""
    try:
        return _REQUESTS[kind].decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"{Kind(kind).name}: {error}") from error


def decode_response(kind: int, header: Buffer) -> ControlResponse:
    """Of a kind that responds to one of them."""
    try:
        return _RESPONSES[kind].decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"{Kind(kind).name}: {error}") from error
