"""Frames: a size, a header, a body. Pure; the connection cuts the stream at the sizes."""

from __future__ import annotations

import struct

from msgspec import Struct

from cairnmq.types import Buffer, Caller
from cairnmq.wire.apis import request_header_version, response_header_version
from cairnmq.wire.primitives import Malformed, read_uvarint, skip_tags

_REQUEST = struct.Struct(">hhih")
_REQUEST_START = struct.Struct(">ihhih")
_RESPONSE = struct.Struct(">i")
_RESPONSE_0 = struct.Struct(">ii")
_RESPONSE_1 = struct.Struct(">iix")


NOBODY = Caller()


class RequestHeader(Struct, frozen=True, gc=False):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None
    caller: Caller = NOBODY  # not in the frame: the connection knows it


def read_request_header(view: Buffer, pos: int = 0, caller: Caller = NOBODY) -> tuple[RequestHeader, int]:
    """The header of the frame at `pos` (after its size), and where the body begins.

    The client id has a two-byte length in every version of the header; a tag section follows it only where the
    request itself is flexible.
    """
    try:
        key, version, correlation_id, length = _REQUEST.unpack_from(view, pos)
        pos += _REQUEST.size
        client_id = None
        if length >= 0:
            end = pos + length
            if end > len(view):
                raise Malformed("the client id is truncated")
            client_id = bytes(view[pos:end]).decode()
            pos = end
        elif length != -1:
            raise Malformed("the client id has a negative length")
        if request_header_version(key, version) == 2:
            pos = _skip_tag_section(view, pos)
    except (struct.error, IndexError) as error:
        raise Malformed("the request header is truncated") from error
    except UnicodeDecodeError as error:
        raise Malformed("the client id is not UTF-8") from error
    return RequestHeader(key, version, correlation_id, client_id, caller), pos


def read_response_header(view: Buffer, api_key: int, version: int, pos: int = 0) -> tuple[int, int]:
    """The correlation id of the frame at `pos` (after its size), and where the body begins."""
    try:
        (correlation_id,) = _RESPONSE.unpack_from(view, pos)
        pos += _RESPONSE.size
        if response_header_version(api_key, version) == 1:
            pos = _skip_tag_section(view, pos)
    except (struct.error, IndexError) as error:
        raise Malformed("the response header is truncated") from error
    return correlation_id, pos


def request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: list[Buffer]
) -> list[Buffer]:
    name = b"" if client_id is None else client_id.encode()
    tags = b"\0" if request_header_version(api_key, version) == 2 else b""
    size = _REQUEST.size + len(name) + len(tags) + sum(map(len, body))
    length = -1 if client_id is None else len(name)
    head = _REQUEST_START.pack(size, api_key, version, correlation_id, length) + name + tags
    return _joined(head, body)


def response_frame(api_key: int, version: int, correlation_id: int, body: list[Buffer]) -> list[Buffer]:
    size = sum(map(len, body))
    if response_header_version(api_key, version) == 1:
        return _joined(_RESPONSE_1.pack(size + 5, correlation_id), body)
    return _joined(_RESPONSE_0.pack(size + 4, correlation_id), body)


def unsent_part(frame: list[Buffer], sent: int) -> list[Buffer]:
    """The rest of a frame after its first bytes have been sent."""
    for index, part in enumerate(frame):
        if sent < len(part):
            return [memoryview(part)[sent:], *frame[index + 1 :]]
        sent -= len(part)
    return []


def _joined(head: bytes, body: list[Buffer]) -> list[Buffer]:
    # The encoder's first piece is a small one of its own making unless records are all there is: one buffer less.
    if body and type(body[0]) is bytes and len(body[0]) <= 1024:
        return [head + body[0], *body[1:]]
    return [head, *body]


def _skip_tag_section(view: Buffer, pos: int) -> int:
    if view[pos] == 0:
        return pos + 1
    whole = memoryview(view)
    count, pos = read_uvarint(whole, pos)
    return skip_tags(whole, pos, count)
