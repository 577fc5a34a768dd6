"""The response to a browser or a scraper that was given the Kafka port."""

from __future__ import annotations

from cairnmq.types import Buffer

# As the size of a request, each of these is too large.
_METHODS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI")
_TEXT = b"This is a Kafka port. The status page is at the address that the broker was given with --http.\n"
HTTP_RESPONSE = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_TEXT), _TEXT)
)


def is_http(start: Buffer) -> bool:
    return bytes(start[:4]) in _METHODS
