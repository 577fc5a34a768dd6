"""What brokers ask of one another about transactions, as bytes."""

from __future__ import annotations

import msgspec
import pytest

from cairnmq.wire.internal import HEADER_BYTES_MAX, Kind, encode
from cairnmq.wire.internal_transactions import (
    KIND_OF,
    MARKERS_MAX,
    QUEUES_MAX,
    RESPONSE_TO,
    ControlRequest,
    EndOffsets,
    Enter,
    Entered,
    JournalEnds,
    JournalMarkers,
    Marked,
    MarkerAsked,
    Markers,
    OffsetsEnd,
    OffsetsEnded,
    decode_request,
    decode_response,
    is_control,
)
from cairnmq.wire.primitives import Malformed

MARKER = MarkerAsked(7, 1 << 41, 3, True, 12, 2)
END = OffsetsEnd("g", 1 << 41, 3, False, True, 12)
REQUESTS = [
    Enter("t", 1 << 41, 3, True, [1, 2], [], 500),
    Enter("t", 1 << 41, 3, False, [], ["g"]),
    Markers(500, [JournalMarkers(2, 9, [MARKER])]),
    EndOffsets(500, [JournalEnds(2, 9, [END])]),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
def test_requests_read_back(request_: ControlRequest) -> None:
    kind = KIND_OF[type(request_)]
    assert is_control(kind) and decode_request(kind, encode(request_)) == request_


@pytest.mark.parametrize("response", [Entered(0, 12, [0, 48]), Marked([0, 6]), OffsetsEnded([52])])
def test_responses_read_back(response: Entered | Marked | OffsetsEnded) -> None:
    kind = KIND_OF[type(response)]
    assert not is_control(kind) and decode_response(kind, encode(response)) == response
    assert kind in RESPONSE_TO.values()


def test_the_bytes_of_a_marker() -> None:
    """Documented in docs/internal-protocol.md: a field is only ever appended."""
    assert msgspec.msgpack.decode(encode(REQUESTS[2])) == [500, [[2, 9, [[7, 1 << 41, 3, True, 12, 2]]]]]
    assert msgspec.msgpack.decode(encode(REQUESTS[3])) == [500, [[2, 9, [["g", 1 << 41, 3, False, True, 12]]]]]
    assert msgspec.msgpack.decode(encode(REQUESTS[0])) == ["t", 1 << 41, 3, True, [1, 2], [], 500]


def test_fields_that_are_not_known_are_left_out() -> None:
    more = msgspec.msgpack.encode([*msgspec.msgpack.decode(encode(REQUESTS[0])), "new"])
    assert decode_request(Kind.ENTER, more) == REQUESTS[0]
    assert decode_request(Kind.ENTER, msgspec.msgpack.encode(["t", 1, 3, True])) == Enter("t", 1, 3, True)


@pytest.mark.parametrize("header", [b"", b"\xc1", msgspec.msgpack.encode(["t", -5, 3, True])])
def test_malformed_headers_are_refused(header: bytes) -> None:
    with pytest.raises(Malformed):
        decode_request(Kind.ENTER, header)
    with pytest.raises(Malformed):
        decode_response(Kind.MARKED, b"\x91")


def test_the_largest_messages_fit_into_a_header() -> None:
    largest = 2**63 - 1
    assert len(encode(Enter("t" * 1000, largest, 3, True, [largest] * QUEUES_MAX))) < HEADER_BYTES_MAX
    marker = MarkerAsked(largest, largest, 2**15 - 1, True, largest, 2)
    assert len(encode(Markers(500, [JournalMarkers(largest, largest, [marker] * MARKERS_MAX)]))) < HEADER_BYTES_MAX
