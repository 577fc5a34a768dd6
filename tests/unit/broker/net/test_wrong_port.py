"""HTTP and TLS at the Kafka port."""

from __future__ import annotations

import ssl

import pytest

from cairnmq.broker.net.wrong_port import http_response, is_http, is_tls
from cairnmq.broker.options import Address
from cairnmq.wire.apis import API_VERSIONS
from unit.broker.wire_client import frame


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "OPTIONS"])
def test_http_is_known_by_its_method(method: str) -> None:
    assert is_http(memoryview(f"{method} /metrics HTTP/1.1\r\n".encode()))


def test_tls_is_known_by_its_first_record() -> None:
    sent = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="broker.example")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    assert is_tls(memoryview(sent.read())) and not is_http(b"\x16\x03\x01\x02")


def test_kafka_is_neither() -> None:
    request = frame(API_VERSIONS, 1)
    assert not is_http(request) and not is_tls(request) and not is_http(b"GE")


@pytest.mark.parametrize(
    ("http", "said"),
    [
        (Address("127.0.0.1", 8080), "the status page is at http://127.0.0.1:8080."),
        (Address("::1", 8080), "the status page is at http://[::1]:8080."),
        (Address("0.0.0.0", 8080), "the status page is at port 8080."),
        (None, "this broker serves no status page."),
    ],
)
def test_response_names_the_status_page_and_its_own_length(http: Address | None, said: str) -> None:
    head, _, body = http_response(http).partition(b"\r\n\r\n")
    assert body.decode() == f"This is a Kafka port; {said}\n"
    assert f"Content-Length: {len(body)}".encode() in head.splitlines()
