"""A small HTTP/1.1 server for the status page, its JSON, health checks and metrics. GET and HEAD only."""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import unquote, urlsplit

import msgspec

from cairnmq.broker.page import PAGE
from cairnmq.broker.status import Status

log = logging.getLogger("cairnmq.broker")

_HEAD_BYTES_MAX = 16 * 1024
_IDLE_SECONDS = 30.0
_CONNECTIONS_MAX = 256
# Pages about every topic and group, or about one with very many partitions, are megabytes on a large broker: a few at a
# time, until their readers have them.
_LARGE_PAGES = frozenset((("metrics",), ("api", "v1", "status"), ("api", "v1", "topics"), ("api", "v1", "groups")))
_LARGE_AT_ONCE = 4
_FAILURES_MAX = 64
_JSON = "application/json"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Response(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    kind: str = _JSON


class HttpServer:
    """Answers from a `Status`."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._server: asyncio.Server | None = None
        self._conversations: set[asyncio.Task[None]] = set()
        self._closed = False
        self._large = asyncio.Semaphore(_LARGE_AT_ONCE)
        self._building = asyncio.Lock()
        self._failures: set[tuple[str, str]] = set()  # that are in the log: page and failure

    async def open(self, host: str, port: int) -> int:
        self._server = await asyncio.start_server(self._converse, host, port, limit=_HEAD_BYTES_MAX)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._closed = True
            self._server.close()
            for conversation in self._conversations:
                conversation.cancel()
            await asyncio.gather(*self._conversations)
            await self._server.wait_closed()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversation = asyncio.current_task()
        if len(self._conversations) >= _CONNECTIONS_MAX or conversation is None:
            writer.transport.abort()
            return
        self._conversations.add(conversation)
        try:
            await self._exchanges(reader, writer)
            writer.close()
            async with asyncio.timeout(_IDLE_SECONDS):
                await writer.wait_closed()
        except (TimeoutError, ConnectionError):
            log.debug("an HTTP client went away or takes nothing")
        except asyncio.CancelledError:
            if not self._closed:
                raise
        finally:
            self._conversations.discard(conversation)
            # A close would wait for whoever never reads, outside of all limits.
            writer.transport.abort()

    async def _exchanges(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # It may still read what it was answered.
            log.debug("an HTTP client has said its last, or sent too much")

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; True if the connection stays open."""
        async with asyncio.timeout(_IDLE_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            await _send(writer, _encoded(Response(400, b'{"error": "not an HTTP/1.x request"}'), False, False))
            return False
        headers = {
            name.strip().lower(): value.strip().lower() for name, _, value in (x.partition(":") for x in lines[1:])
        }
        # A body is never expected and never read, so the connection cannot be used again behind one.
        bodied = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        keep = words[2] == "HTTP/1.1" and headers.get("connection") != "close" and not bodied
        if words[0] not in ("GET", "HEAD"):
            await _send(writer, _encoded(Response(405, b'{"error": "only GET and HEAD"}'), False, keep))
            return keep
        try:
            parts = [unquote(part) for part in urlsplit(words[1]).path.split("/") if part]
        except ValueError:
            await _send(writer, _encoded(Response(400, b'{"error": "not a path"}'), False, False))
            return False
        if tuple(parts[:3]) in _LARGE_PAGES:
            async with asyncio.timeout(2 * _IDLE_SECONDS), self._large:
                await _send(writer, _encoded(await self._large_page(parts), words[0] == "HEAD", keep))
        else:
            await _send(writer, _encoded(await self._answer(parts), words[0] == "HEAD", keep))
        return keep

    async def _large_page(self, parts: list[str]) -> Response:
        """One after another, with as much rest as work in between: a flood of questions takes half of the time."""
        async with self._building:
            clock = asyncio.get_running_loop().time
            started = clock()
            response = await self._answer(parts)
            await asyncio.sleep(clock() - started)
            return response

    async def _answer(self, parts: list[str]) -> Response:
        try:
            return await self._page(parts)
        except Exception as failure:
            known = ("/".join(parts[:3]), repr(failure))
            if known not in self._failures:  # monitoring asks again and again, for several pages in turn
                if len(self._failures) >= _FAILURES_MAX:
                    self._failures.clear()
                self._failures.add(known)
                log.exception("the status page failed: /%s: %r", "/".join(parts), failure)
            return Response(500, msgspec.json.encode({"error": "failed; the broker's log says why"}))

    async def _page(self, parts: list[str]) -> Response:
        status = self._status
        match parts:
            case []:
                return Response(200, PAGE, "text/html; charset=utf-8")
            case ["metrics"]:
                return Response(200, (await status.metrics()).encode(), "text/plain; version=0.0.4; charset=utf-8")
            case ["health", "live"]:
                return Response(200, b'{"live": true}')
            case ["health", "ready"]:
                problems = status.problems()
                body = {"ready": not problems, "reasons": problems}
                return Response(503 if problems else 200, msgspec.json.encode(body))
            case ["api", "v1", "status"]:
                return _json(await status.overview())
            case ["api", "v1", "broker"]:
                return _json(status.broker())
            case ["api", "v1", "topics"]:
                return _json(await status.topics())
            case ["api", "v1", "topics", name]:
                topic = await status.topic(name)
                return _json(topic) if topic is not None else _NOT_FOUND
            case ["api", "v1", "groups"]:
                return _json(await status.groups())
            case ["api", "v1", "groups", name]:
                group = await status.group(name)
                return _json(group) if group is not None else _NOT_FOUND
            case ["api", "v1", "storage"]:
                return _json(status.storage())
        return _NOT_FOUND


_NOT_FOUND = Response(404, b'{"error": "not found"}')


async def _send(writer: asyncio.StreamWriter, answer: bytes) -> None:
    if writer.is_closing():  # uvloop bears no writes on a connection that its client has reset
        raise ConnectionResetError
    writer.write(answer)
    async with asyncio.timeout(_IDLE_SECONDS):
        await writer.drain()


def _json(value: object) -> Response:
    return Response(200, msgspec.json.encode(value))


def _encoded(response: Response, head_only: bool, keep: bool) -> bytes:
    head = (
        f"HTTP/1.1 {response.status} {_REASONS[response.status]}\r\n"
        f"Content-Type: {response.kind}\r\n"
        f"Content-Length: {len(response.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        "connect-src 'self'; img-src data:\r\n"
        f"Connection: {'keep-alive' if keep else 'close'}\r\n\r\n"
    )
    return head.encode("latin-1") + (b"" if head_only else response.body)
