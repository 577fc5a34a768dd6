"""One client connection without a socket: negotiation, framing, answers in any pieces, peers that are no brokers."""

from __future__ import annotations

import pytest

from cairnmq.client.connection import FRAME_BYTES_MAX, Connection, Reply
from cairnmq.client.errors import ClientError, Unsupported
from cairnmq.types import Buffer
from cairnmq.wire.apis import APIS, SERVED
from cairnmq.wire.framing import RequestHeader, read_request_header
from cairnmq.wire.messages import ApiVersionsResponse, ListOffsetsRequest, MetadataRequest, MetadataResponse
from scripted_broker import api_versions, framed


def feed(connection: Connection, data: bytes, pieces: int = 1 << 30) -> list[Reply]:
    """Gives the connection bytes as a socket would, at most `pieces` at a time."""
    replies = []
    while data:
        space = connection.space()
        count = min(len(space), len(data), pieces)
        space[:count] = data[:count]
        data = data[count:]
        reply = connection.received(count)
        if reply is not None:
            replies.append(reply)
    return replies


def header_of(frame: list[Buffer]) -> RequestHeader:
    whole = b"".join(frame)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    return read_request_header(memoryview(whole)[4:])[0]


def greeted(versions: dict[int, tuple[int, int]] = SERVED) -> Connection:
    connection = Connection("me", "somewhere:1", "1.2.3")
    hello = header_of(connection.hello())
    (reply,) = feed(connection, framed(hello, api_versions(versions), hello.api_version))
    assert isinstance(reply.message, ApiVersionsResponse)
    assert connection.greeted(reply.message) is None
    return connection


def test_the_newest_common_version_is_used() -> None:
    connection = greeted({18: (0, 4), 3: (0, 5), 2: (1, 99)})
    _, frame = connection.request(MetadataRequest())
    assert header_of(frame).api_version == 5
    _, frame = connection.request(ListOffsetsRequest())
    assert header_of(frame).api_version == APIS[2].max
    assert header_of(frame).client_id == "me"


def test_an_older_broker_is_greeted_again_in_its_version() -> None:
    connection = Connection("me", "somewhere:1", "1.2.3")
    hello = header_of(connection.hello())
    refusal = ApiVersionsResponse(error_code=35, api_keys=api_versions({18: (0, 2)}).api_keys)
    (reply,) = feed(connection, framed(hello, refusal, 0))
    assert isinstance(reply.message, ApiVersionsResponse)
    again = connection.greeted(reply.message)
    assert again is not None
    second = header_of(again)
    assert second.api_version == 2
    (reply,) = feed(connection, framed(second, api_versions({18: (0, 2), 3: (0, 1)}), 2))
    assert isinstance(reply.message, ApiVersionsResponse)
    assert connection.greeted(reply.message) is None
    assert connection.versions == {18: (0, 2), 3: (0, 1)}


def test_a_broker_that_always_refuses_is_not_greeted_for_ever() -> None:
    connection = Connection("me", "somewhere:1", "1.2.3")
    hello: list[Buffer] | None = connection.hello()
    versions = []
    for _ in range(3):
        assert hello is not None
        header = header_of(hello)
        versions.append(header.api_version)
        (reply,) = feed(connection, framed(header, ApiVersionsResponse(error_code=35), 0))
        assert isinstance(reply.message, ApiVersionsResponse)
        try:
            hello = connection.greeted(reply.message)
        except ClientError:
            break
    else:
        pytest.fail(f"greeted with versions {versions} and went on")


def test_what_the_broker_does_not_serve_is_a_sentence() -> None:
    connection = greeted({18: (0, 4), 2: (1, 6)})
    with pytest.raises(
        Unsupported, match="Metadata versions 0 to 13 are needed; the broker at somewhere:1 serves none"
    ):
        connection.request(MetadataRequest())
    with pytest.raises(Unsupported, match="ListOffsets versions 7 to 11 are needed; .* serves versions 1 to 6"):
        connection.request(ListOffsetsRequest(), min_version=7)


@pytest.mark.parametrize("pieces", [1, 3, 1000])
def test_answers_arrive_whole_from_any_pieces(pieces: int) -> None:
    connection = greeted()
    first, frame = connection.request(MetadataRequest())
    second, other = connection.request(MetadataRequest())
    answers = [MetadataResponse(cluster_id="one"), MetadataResponse(cluster_id="two" * 100)]
    data = framed(header_of(frame), answers[0], 13) + framed(header_of(other), answers[1], 13)
    assert feed(connection, data, pieces) == [Reply(first, answers[0]), Reply(second, answers[1])]


def test_an_answer_to_nothing_is_an_error() -> None:
    connection = greeted()
    with pytest.raises(ClientError, match="request 77, which was not sent"):
        feed(connection, framed(RequestHeader(3, 1, 77), MetadataResponse(), 1))


def test_an_answer_that_cannot_be_read_is_an_error() -> None:
    connection = greeted()
    number, _ = connection.request(MetadataRequest())
    with pytest.raises(ClientError, match="Metadata response that cannot be read"):
        feed(connection, (9).to_bytes(4, "big") + number.to_bytes(4, "big") + b"\0\xff\xff\xff\xff")


@pytest.mark.parametrize(
    ("start", "sentence"),
    [
        (b"HTTP/1.1 400 Bad Request", "it is an HTTP server"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "it speaks TLS"),
        (b"\xff\xff\xff\xff", "its response begins with"),
        ((FRAME_BYTES_MAX + 1).to_bytes(4, "big"), "its response begins with"),
    ],
)
def test_a_peer_that_is_no_broker_is_named(start: bytes, sentence: str) -> None:
    connection = Connection("me", "somewhere:1", "1.2.3")
    connection.hello()
    with pytest.raises(ClientError, match=f"somewhere:1 does not speak Kafka's protocol: {sentence}"):
        feed(connection, start)
