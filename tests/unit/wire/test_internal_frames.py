"""The stream of a link as frames: however it is cut, and whatever a hostile peer sends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.wire.internal import PREFIX_BYTES, Prefix, frame_head
from cairnmq.wire.internal_frames import Frame, FrameParser, no_room
from cairnmq.wire.primitives import Malformed

HEADER_MAX = 5000

frames = st.lists(
    st.tuples(
        st.integers(0, 255), st.integers(0, 2**32 - 1), st.binary(max_size=HEADER_MAX), st.binary(max_size=200)
    ).flatmap(lambda head: st.tuples(st.just(head), st.sampled_from([0, 1, 400])))
)


def room(prefix: Prefix) -> memoryview:
    return memoryview(bytearray(prefix.raw_bytes))


def feed(parser: FrameParser, data: bytes, cuts: list[int]) -> list[Frame]:
    """`cuts`: how much arrives at once, over and over; never more than there is room for."""
    found: list[Frame] = []
    view, turn = memoryview(data), 0
    while view:
        space = parser.space()
        count = min(len(space), len(view), cuts[turn % len(cuts)])
        space[:count] = view[:count]
        found += parser.received(count)
        view, turn = view[count:], turn + 1
    return found


@given(frames, st.lists(st.integers(1, 100_000), min_size=1, max_size=5), st.sampled_from([16, 100, 1 << 14]))
def test_frames_survive_any_cut(
    sent: list[tuple[tuple[int, int, bytes, bytes], int]], cuts: list[int], scratch: int
) -> None:
    data, expected = b"", []
    for (kind, correlation, header, raw), times in sent:
        data += frame_head(kind, correlation, header, len(raw) * times) + raw * times
        expected.append((kind, correlation, header, raw * times))
    found = feed(FrameParser(HEADER_MAX, room, scratch), data, cuts)
    assert [(one.kind, one.correlation, one.header, bytes(one.raw)) for one in found] == expected


@given(st.binary(max_size=400), st.lists(st.integers(1, 50), min_size=1, max_size=3))
def test_any_bytes_give_frames_or_malformed(data: bytes, cuts: list[int]) -> None:
    taken: list[int] = []

    def bounded(prefix: Prefix) -> memoryview:
        if prefix.raw_bytes > 1000:
            raise Malformed("too many")
        taken.append(prefix.raw_bytes)
        return room(prefix)

    try:
        feed(FrameParser(100, bounded), data, cuts)
    except Malformed:
        pass
    assert sum(taken) <= 1000 * (len(data) // PREFIX_BYTES)


@given(st.binary(min_size=PREFIX_BYTES, max_size=400), st.data())
def test_a_changed_byte_never_stops_the_parser(raw: bytes, data: st.DataObject) -> None:
    """It gives other frames, waits for more, or says so; then it takes nothing any more."""
    stream = bytearray(b"".join(frame_head(17, number, b"header", len(raw)) + raw for number in range(3)))
    stream[data.draw(st.integers(0, len(stream) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    parser = FrameParser(100, no_room if data.draw(st.booleans()) else lambda p: room(_at_most(p, 1000)))
    try:
        feed(parser, bytes(stream), [7])
    except Malformed:
        with pytest.raises(Malformed, match="earlier"):
            parser.received(0)


def _at_most(prefix: Prefix, limit: int) -> Prefix:
    if prefix.raw_bytes > limit:
        raise Malformed("too many")
    return prefix


def test_large_raw_bytes_are_received_in_their_place() -> None:
    place = memoryview(bytearray(1 << 20))
    parser = FrameParser(100, lambda prefix: place)
    head = frame_head(17, 1, b"h", 1 << 20)
    assert feed(parser, head, [len(head)]) == []
    space = parser.space()
    assert space.obj is place.obj and len(space) == 1 << 20
    assert parser.received(1 << 19) == []
    assert len(parser.space()) == 1 << 19
    (frame,) = parser.received(1 << 19)
    assert frame.raw is place
    assert len(parser.space()) < 1 << 19  # the next frame


@pytest.mark.parametrize("header_bytes", [101, 1 << 31])
def test_a_large_header_is_refused_before_memory_is_taken(header_bytes: int) -> None:
    parser = FrameParser(100, room)
    prefix = (9 + header_bytes).to_bytes(4, "big") + b"\x01" + bytes(4) + header_bytes.to_bytes(4, "big")
    with pytest.raises(Malformed, match="at most 100"):
        feed(parser, prefix, [64])


def test_two_gigabytes_are_refused_before_memory_is_taken() -> None:
    prefix = (2 << 30).to_bytes(4, "big") + b"\x01" + bytes(4) + (3).to_bytes(4, "big") + b"abc"
    with pytest.raises(Malformed, match="may have none"):
        feed(FrameParser(100), prefix, [64])


def test_a_length_below_its_own_fields_is_refused() -> None:
    with pytest.raises(Malformed, match="cannot hold"):
        feed(FrameParser(100), bytes(PREFIX_BYTES), [64])
