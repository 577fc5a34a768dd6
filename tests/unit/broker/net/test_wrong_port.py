"""HTTP at the Kafka port."""

from __future__ import annotations

import pytest

from cairnmq.broker.net.wrong_port import HTTP_RESPONSE, is_http
from cairnmq.wire.apis import API_VERSIONS
from unit.broker.wire_client import frame


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "OPTIONS"])
def test_http_is_known_by_its_method(method: str) -> None:
    assert is_http(memoryview(f"{method} /metrics HTTP/1.1\r\n".encode()))


def test_kafka_is_not_http() -> None:
    assert not is_http(frame(API_VERSIONS, 1)) and not is_http(b"GE")


def test_response_has_the_length_it_says() -> None:
    head, _, body = HTTP_RESPONSE.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head.splitlines() and b"--http" in body
