"""Clients that speak another protocol at the Kafka port: a browser or a scraper, or a Kafka client with TLS."""

from __future__ import annotations

from cairnmq.broker.options import Address
from cairnmq.types import Buffer

# As the size of a request, each of these is too large.
_METHODS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI")
_TLS_HANDSHAKE = b"\x16\x03"
_EVERY_HOST = ("0.0.0.0", "::")


def is_http(start: Buffer) -> bool:
    return bytes(start[:4]) in _METHODS


def is_tls(start: Buffer) -> bool:
    return bytes(start[:2]) == _TLS_HANDSHAKE


def refusal_of_stranger(start: Buffer, http: Address | None) -> tuple[str, bytes]:
    """For the log and for the client; empty if nobody knows what this is."""
    if is_http(start):
        return f"looks like HTTP, but this is the Kafka port; {_where_the_page_is(http)}", http_response(http)
    if is_tls(start):
        return "looks like TLS, but this port is not encrypted; clients need security.protocol=PLAINTEXT", b""
    return "", b""


def _where_the_page_is(http: Address | None) -> str:
    if http is None:
        return "this broker serves no status page"
    if http.host in _EVERY_HOST:
        return f"the status page is at port {http.port}"
    return f"the status page is at http://{http}"


def http_response(http: Address | None) -> bytes:
    text = f"This is a Kafka port; {_where_the_page_is(http)}.\n".encode()
    return (
        b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(text), text)
    )
