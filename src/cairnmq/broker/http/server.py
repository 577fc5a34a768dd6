"""A small HTTP/1.1 server for the status page, its JSON, health checks and metrics. GET and HEAD only."""

from __future__ import annotations

import asyncio
import logging
from ipaddress import ip_address
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from cairnmq.broker.http import page_files
from cairnmq.broker.http.message_status import MESSAGES_SHOWN
from cairnmq.broker.http.status import Status
from cairnmq.broker.options import Address

log = logging.getLogger("cairnmq.broker")

_HEAD_BYTES_MAX = 16 * 1024
_IDLE_SECONDS = 30.0
_CONNECTIONS_MAX = 256
# Pages about every topic and group, or about one with very many partitions, are megabytes on a large broker: a few at a
# time, until their readers have them.
_LARGE_PAGES = frozenset((("metrics",), ("api", "v1", "status"), ("api", "v1", "topics"), ("api", "v1", "groups")))
_LARGE_AT_ONCE = 4
_FAILURES_MAX = 64
_QUERY_FIELDS_MAX = 8
_JSON = "application/json"
# Scripts and styles are files of ours, so nothing that a client put into a name or a message can ever run.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
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
        self._reading = asyncio.Lock()
        self._loopback = True  # other machines cannot reach us
        self._failures: set[tuple[str, str]] = set()  # that are in the log: page and failure

    async def open(self, host: str, port: int) -> int:
        self._server = await asyncio.start_server(self._converse, host, port, limit=_HEAD_BYTES_MAX)
        self._loopback = Address(host, port).loopback
        self._status.traffic.start()
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._closed = True
            self._status.traffic.stop()
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
        except (TimeoutError, ConnectionError) as error:
            # The reader refers to the error, and the frames of the error to the reader and the response: a reference
            # cycle, which would stay in memory until the garbage collector runs.
            error.__traceback__ = None
            log.debug("HTTP client disconnected or does not read its response")
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
            log.debug("HTTP connection closed or request too large")

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; True if the connection stays open."""
        async with asyncio.timeout(_IDLE_SECONDS):
            first = await reader.readexactly(1)
            if not first.isalpha():  # a Kafka client at the wrong port would wait for an end that never comes
                await _send(writer, _encoded(_NOT_HTTP, False, False))
                return False
            head = first + await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            await _send(writer, _encoded(_NOT_HTTP, False, False))
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
            url = urlsplit(words[1])
            parts = [unquote(part) for part in url.path.split("/") if part]
            query = {name: values[-1] for name, values in parse_qs(url.query, max_num_fields=_QUERY_FIELDS_MAX).items()}
        except ValueError:
            await _send(writer, _encoded(Response(400, b'{"error": "not a path"}'), False, False))
            return False
        if len(parts) == 5 and parts[:3] == ["api", "v1", "topics"] and parts[4] == "messages":
            async with asyncio.timeout(2 * _IDLE_SECONDS), self._reading:  # one at a time: it reads and unpacks
                response = await self._answer(parts, query) if self._is_ours(headers.get("host", "")) else _FOREIGN
                await _send(writer, _encoded(response, words[0] == "HEAD", keep))
        elif tuple(parts[:3]) in _LARGE_PAGES:
            async with asyncio.timeout(2 * _IDLE_SECONDS), self._large:
                await _send(writer, _encoded(await self._large_page(parts, query), words[0] == "HEAD", keep))
        else:
            await _send(writer, _encoded(await self._answer(parts, query), words[0] == "HEAD", keep))
        return keep

    def _is_ours(self, host: str) -> bool:
        """A website can give its own name our address and then read what we answer; an address or `localhost` cannot be
        taken like that. Who opened the port to other machines decides by which names they call it."""
        if not self._loopback or not host:
            return True
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        try:
            return name == "localhost" or bool(ip_address(name.strip("[]")))
        except ValueError:
            return False

    async def _large_page(self, parts: list[str], query: dict[str, str]) -> Response:
        """One after another, with as much rest as work in between: a flood of questions takes half of the time."""
        async with self._building:
            clock = asyncio.get_running_loop().time
            started = clock()
            response = await self._answer(parts, query)
            await asyncio.sleep(clock() - started)
            return response

    async def _answer(self, parts: list[str], query: dict[str, str]) -> Response:
        try:
            return await self._page(parts, query)
        except Exception as failure:
            known = ("/".join(parts[:3]), repr(failure))
            if known not in self._failures:  # monitoring asks again and again, for several pages in turn
                if len(self._failures) >= _FAILURES_MAX:
                    self._failures.clear()
                self._failures.add(known)
                log.exception("status page: request /%s failed: %r", "/".join(parts), failure)
            return Response(500, msgspec.json.encode({"error": "request failed; see the broker's log"}))

    async def _page(self, parts: list[str], query: dict[str, str]) -> Response:
        status = self._status
        match parts:
            case []:
                return await _file(page_files.INDEX)
            case [name] if name in page_files.KINDS:
                return await _file(name)
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
                return _found(await status.topic(name))
            case ["api", "v1", "topics", name, "settings"]:
                return _found(status.topic_settings(name))
            case ["api", "v1", "topics", name, "groups"]:
                return _found(await status.topic_groups(name))
            case ["api", "v1", "topics", name, "messages"]:
                partition, limit = query.get("partition", ""), query.get("limit", str(MESSAGES_SHOWN))
                if not all(map(_is_number, filter(None, (partition, limit)))):
                    return Response(400, b'{"error": "partition and limit are whole numbers"}')
                return _found(await status.messages(name, int(partition) if partition else None, int(limit)))
            case ["api", "v1", "groups"]:
                return _json(await status.groups())
            case ["api", "v1", "groups", name]:
                return _found(await status.group(name))
            case ["api", "v1", ("storage" | "cluster") as part]:
                return _found({"storage": status.storage, "cluster": status.cluster}[part]())
        return _NOT_FOUND


_NOT_FOUND = Response(404, b'{"error": "not found"}')
_FOREIGN = Response(403, b'{"error": "messages are shown only to who calls this machine localhost or by its address"}')
_NOT_HTTP = Response(400, b'{"error": "not an HTTP/1.x request"}')


async def _send(writer: asyncio.StreamWriter, answer: bytes) -> None:
    if writer.is_closing():  # uvloop bears no writes on a connection that its client has reset
        raise ConnectionResetError
    writer.write(answer)
    async with asyncio.timeout(_IDLE_SECONDS):
        await writer.drain()


def _json(value: object) -> Response:
    return Response(200, msgspec.json.encode(value))


def _found(value: object | None) -> Response:
    return _json(value) if value is not None else _NOT_FOUND


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


async def _file(name: str) -> Response:
    return Response(200, await asyncio.to_thread(page_files.read, name), page_files.KINDS[name])


def _encoded(response: Response, head_only: bool, keep: bool) -> bytes:
    head = (
        f"HTTP/1.1 {response.status} {_REASONS[response.status]}\r\n"
        f"Content-Type: {response.kind}\r\n"
        f"Content-Length: {len(response.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Referrer-Policy: no-referrer\r\n"
        f"Content-Security-Policy: {_POLICY}\r\n"
        f"Connection: {'keep-alive' if keep else 'close'}\r\n\r\n"
    )
    return head.encode("latin-1") + (b"" if head_only else response.body)
