"""Frames by hand: sizes, headers, and the two places where everyone expects something else."""

from __future__ import annotations

import pytest

from cairnmq.types import Buffer
from cairnmq.wire.codec import Malformed
from cairnmq.wire.framing import (
    RequestHeader,
    read_request_header,
    read_response_header,
    request_frame,
    response_frame,
    unsent_part,
)


def test_the_client_id_is_never_compact() -> None:
    assert b"".join(request_frame(0, 9, 7, "me", [b"B"])).hex(" ") == (
        "00 00 00 0e 00 00 00 09 00 00 00 07 00 02 6d 65 00 42"
    )
    header, pos = read_request_header(bytes.fromhex("00 00 00 09 00 00 00 07 00 02 6d 65 00 42"))
    assert (header, pos) == (RequestHeader(0, 9, 7, "me"), 13)


def test_a_null_client_id_in_a_legacy_header() -> None:
    frame = bytes.fromhex("00 00 00 08 00 00 00 07 ff ff 42")
    assert read_request_header(frame) == (RequestHeader(0, 8, 7, None), 10)
    assert b"".join(request_frame(0, 8, 7, None, [b"B"]))[4:] == frame


def test_tags_in_headers_are_stepped_over() -> None:
    assert read_request_header(bytes.fromhex("00 00 00 09 00 00 00 07 ff ff 02 00 01 aa 09 00 42"))[1] == 16
    assert read_response_header(bytes.fromhex("00 00 00 07 01 00 01 aa 42"), 0, 9) == (7, 8)


@pytest.mark.parametrize(
    ("key", "version", "expected"),
    [
        (0, 8, "00 00 00 05 00 00 00 07 42"),
        (0, 9, "00 00 00 06 00 00 00 07 00 42"),
        (18, 3, "00 00 00 05 00 00 00 07 42"),  # ApiVersions: header 0 in every version
    ],
)
def test_response_headers(key: int, version: int, expected: str) -> None:
    frame = b"".join(response_frame(key, version, 7, [b"B"]))
    assert frame.hex(" ") == expected
    assert read_response_header(frame, key, version, 4) == (7, len(frame) - 1)


def test_an_unknown_api_still_has_a_readable_header() -> None:
    assert read_request_header(bytes.fromhex("7f ff 00 63 00 00 00 07 ff ff")) == (
        RequestHeader(32767, 99, 7, None),
        10,
    )


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "00 00 00 09 00 00 00 07",
        "00 00 00 09 00 00 00 07 00 05 6d 65",
        "00 00 00 09 00 00 00 07 ff fe 00",
        "00 00 00 09 00 00 00 07 00 01 ff 00",
        "00 00 00 09 00 00 00 07 ff ff",
        "00 00 00 09 00 00 00 07 ff ff 01 00 05 aa",
        "00 00 00 09 00 00 00 07 ff ff ff ff ff ff ff 01",
    ],
)
def test_bad_request_headers(frame: str) -> None:
    with pytest.raises(Malformed):
        read_request_header(bytes.fromhex(frame))


@pytest.mark.parametrize("frame", ["00 00 00", "00 00 00 07", "00 00 00 07 01 00 09"])
def test_bad_response_headers(frame: str) -> None:
    with pytest.raises(Malformed):
        read_response_header(bytes.fromhex(frame), 0, 9)


def test_large_bodies_are_not_copied() -> None:
    body: list[Buffer] = [b"x" * 5000, memoryview(b"y" * 10)]
    frame = response_frame(1, 12, 7, body)
    assert [piece for piece in frame if piece is body[0] or piece is body[1]] == body
    assert len(response_frame(1, 12, 7, [b"small", body[1]])) == 2


def test_what_is_left_of_a_frame() -> None:
    frame: list[Buffer] = [b"head", memoryview(b""), memoryview(b"records"), b"!"]
    whole = b"".join(frame)
    for sent in range(len(whole) + 1):
        assert b"".join(unsent_part(frame, sent)) == whole[sent:]
