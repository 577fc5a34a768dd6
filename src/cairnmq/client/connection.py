"""The client's side of one connection, without its socket: negotiates versions, frames requests, reads answers.

A shell reads into `space()` and reports with `received(count)`, so a fetched megabyte is received straight into the
frame that its records are later read from. Blocking and asyncio shells need nothing else.
"""

from __future__ import annotations

from functools import cache

from msgspec import Struct

from cairnmq.client.errors import ClientError, Unsupported
from cairnmq.errors import ErrorCode
from cairnmq.types import Buffer
from cairnmq.wire.apis import APIS, INTERNAL_FROM, request_class, response_class
from cairnmq.wire.codec import Malformed, decode, encode
from cairnmq.wire.framing import read_response_header, request_frame
from cairnmq.wire.messages import ApiVersionsRequest, ApiVersionsResponse, Message

FRAME_BYTES_MAX = 256 * 1024 * 1024
_SIZE_BYTES = 4
_API_VERSIONS = 18


class Reply(Struct, frozen=True):
    """An answer, and the number of the request it answers."""

    correlation_id: int
    message: Message


class _Waiting(Struct, frozen=True):
    api_key: int
    version: int


@cache
def _api_key(request: type[Message]) -> int:
    for key in APIS:
        if request_class(key) is request:
            return key
    raise TypeError(f"{request.__name__} is not a request")


class Connection:
    """State of one connection; `address` is only for sentences."""

    def __init__(self, client_id: str, address: str, software_version: str) -> None:
        self.address = address
        self.versions: dict[int, tuple[int, int]] | None = None
        self._client_id = client_id
        self._software_version = software_version
        self._next_id = 0
        self._hello_version = 0
        self._waiting: dict[int, _Waiting] = {}
        self._frame = bytearray(_SIZE_BYTES)
        self._filled = 0
        self._in_body = False

    @property
    def pending(self) -> bool:
        """Is there a request without its answer?"""
        return bool(self._waiting)

    def hello(self) -> list[Buffer]:
        """The first frame of a connection: which APIs does the broker serve?"""
        return self._hello(APIS[_API_VERSIONS].max)

    def greeted(self, answer: Message) -> list[Buffer] | None:
        """Takes the answer to a hello. None: ready for requests; else the hello to send once more (an older broker)."""
        if not isinstance(answer, ApiVersionsResponse):
            raise ClientError(f"{self.address} responded to ApiVersions with {type(answer).__name__}")
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            if self._hello_version == 0:
                raise ClientError(f"{self.address} supports no version of ApiVersions that this client knows")
            offered = [api.max_version for api in answer.api_keys if api.api_key == _API_VERSIONS]
            return self._hello(max(0, min([*offered, self._hello_version - 1])) if offered else 0)
        if answer.error_code:
            raise ClientError(f"{self.address} rejected ApiVersions with error {answer.error_code}")
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        return None

    def request(self, message: Message, *, min_version: int = 0, answered: bool = True) -> tuple[int, list[Buffer]]:
        """The frame for a request in the newest version both sides know, and its number."""
        key = _api_key(type(message))
        return self._frame_for(key, self._version(key, min_version), message, answered)

    def space(self) -> memoryview:
        """Where the next bytes from the broker belong; never empty."""
        return memoryview(self._frame)[self._filled :]

    def received(self, count: int) -> Reply | None:
        """Says that `count` bytes of `space()` were filled; gives an answer when one is whole."""
        self._filled += count
        if self._filled < len(self._frame):
            return None
        whole = self._frame
        self._filled = 0
        if not self._in_body:
            size = int.from_bytes(whole, "big", signed=True)
            if not _SIZE_BYTES <= size <= FRAME_BYTES_MAX:
                raise ClientError(f"{self.address} does not speak Kafka's protocol: {_guess(bytes(whole))}")
            self._in_body = True
            self._frame = bytearray(size)
            return None
        self._in_body = False
        self._frame = bytearray(_SIZE_BYTES)
        return self._reply(memoryview(whole))

    def _hello(self, version: int) -> list[Buffer]:
        self._hello_version = version
        hello = ApiVersionsRequest(client_software_name="cairnmq", client_software_version=self._software_version)
        return self._frame_for(_API_VERSIONS, version, hello, True)[1]

    def _version(self, key: int, min_version: int) -> int:
        assert self.versions is not None, "send no request before the versions are negotiated"
        api = APIS[key]
        if key >= INTERNAL_FROM:
            return api.max
        low, high = self.versions.get(key, (0, -1))
        version = min(high, api.max)
        if version < max(low, api.min, min_version):
            offer = f"versions {low} to {high}" if high >= 0 else "none"
            wanted = f"versions {max(api.min, min_version)} to {api.max}"
            raise Unsupported(f"{api.name} {wanted} are needed; the broker at {self.address} serves {offer}")
        return version

    def _frame_for(self, key: int, version: int, message: Message, answered: bool) -> tuple[int, list[Buffer]]:
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) & 0x7FFFFFFF
        if answered:
            self._waiting[correlation_id] = _Waiting(key, version)
        return correlation_id, request_frame(key, version, correlation_id, self._client_id, encode(message, version))

    def _reply(self, frame: memoryview) -> Reply:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            raise ClientError(f"{self.address} responded to request {correlation_id}, which was not sent")
        try:
            _, position = read_response_header(frame, waiting.api_key, waiting.version)
            version = waiting.version
            # A broker that does not know our version of this one request answers in the oldest (KIP-511).
            if waiting.api_key == _API_VERSIONS and int.from_bytes(frame[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION:
                version = 0
            message, _ = decode(response_class(waiting.api_key), version, frame, position)
        except Malformed as error:
            name = APIS[waiting.api_key].name
            raise ClientError(f"{self.address} sent a {name} response that cannot be read: {error}") from None
        return Reply(correlation_id, message)


def _guess(start: bytes) -> str:
    if start == b"HTTP":
        return "it is an HTTP server; use the port for Kafka clients (cairn serve --listen)"
    if start[:1] in (b"\x15", b"\x16"):
        return "it speaks TLS"
    return f"its response begins with {start!r}"
