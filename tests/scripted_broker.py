"""A socket that speaks Kafka's protocol by a script: what a client does can be seen, and what it gets can be chosen."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from cairnmq.types import Buffer
from cairnmq.wire.apis import SERVED, request_class
from cairnmq.wire.codec import decode, encode
from cairnmq.wire.framing import RequestHeader, read_request_header, response_frame
from cairnmq.wire.messages import ApiVersionsResponse, Message, MetadataResponse

Script = Callable[[Message, RequestHeader], Message | bytes | None]


def api_versions(ranges: dict[int, tuple[int, int]] = SERVED) -> ApiVersionsResponse:
    rows = [ApiVersionsResponse.ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in ranges.items()]
    return ApiVersionsResponse(api_keys=rows)


def metadata(topics: dict[str, list[int]], ports: dict[int, int]) -> MetadataResponse:
    """Topics as lists of leaders; brokers as {node: port}."""
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=n, host="127.0.0.1", port=p) for n, p in ports.items()
        ],
        cluster_id="scripted",
        controller_id=min(ports, default=-1),
        topics=[
            MetadataResponse.MetadataResponseTopic(
                name=name,
                topic_id=topic_id(name),
                partitions=[
                    MetadataResponse.MetadataResponsePartition(
                        partition_index=i, leader_id=leader, replica_nodes=[leader], isr_nodes=[leader]
                    )
                    for i, leader in enumerate(leaders)
                ],
            )
            for name, leaders in topics.items()
        ],
    )


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


class Clock:
    """In place of the module `time`: sleeping takes no time, and nothing else does. A client that is patient for a
    minute gives up at once, however long the machine takes for what it asks meanwhile."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class ScriptedBroker:
    """Answers each request with what the script returns: a message, raw bytes, or None for closing the connection.

    A script may also return NO_ANSWER, and the broker goes on to read.
    """

    NO_ANSWER = b""

    def __init__(self, script: Script, versions: dict[int, tuple[int, int]] = SERVED) -> None:
        self.seen: list[tuple[int, int, Message]] = []
        self.connections = 0
        self._script = script
        self._versions = versions
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._sockets: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def __enter__(self) -> ScriptedBroker:
        return self

    def __exit__(self, *_: object) -> None:
        """Closed only when its thread has left it: the next listener may get the same file descriptor, and a thread
        that had just begun to accept would take the other's connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        for connected in self._sockets:
            with suppress(OSError):  # it has ended before
                connected.shutdown(socket.SHUT_RDWR)

    def requests(self, kind: type[Message]) -> list[Message]:
        return [message for _, _, message in self.seen if isinstance(message, kind)]

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(connected)
            threading.Thread(target=self._serve, args=(connected,), daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        with suppress(ConnectionError), connected, connected.makefile("rb") as stream:
            while size := stream.read(4):
                frame = memoryview(stream.read(int.from_bytes(size, "big")))
                reply = self._answer(frame)
                if reply is None:
                    return
                connected.sendall(reply)

    def _answer(self, frame: memoryview) -> bytes | None:
        header, position = read_request_header(frame)
        if header.api_key == 18:
            version = min(header.api_version, self._versions[18][1])
            answer: Message | bytes | None = api_versions(self._versions)
            if version < header.api_version:
                refused = ApiVersionsResponse(error_code=35, api_keys=api_versions({18: self._versions[18]}).api_keys)
                return framed(header, refused, 0)
        else:
            request, _ = decode(request_class(header.api_key), header.api_version, frame, position)
            self.seen.append((header.api_key, header.api_version, request))
            answer = self._script(request, header)
        if answer is None or isinstance(answer, bytes):
            return answer
        return framed(header, answer, header.api_version)


def framed(header: RequestHeader, message: Message, version: int) -> bytes:
    body: list[Buffer] = encode(message, version)
    return b"".join(response_frame(header.api_key, version, header.correlation_id, body))
