"""A group member that speaks the raw protocol: cheap enough for ten thousand of them in one process."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

from cairnmq.errors import ErrorCode
from cairnmq.types import Buffer
from cairnmq.wire.apis import APIS, response_class
from cairnmq.wire.codec import decode, encode
from cairnmq.wire.framing import read_response_header, request_frame
from cairnmq.wire.messages import (
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    Message,
    SyncGroupRequest,
    SyncGroupResponse,
)

M = TypeVar("M", bound=Message)

# Versions of Java clients; Heartbeat 4 is flexible, so its answer is: correlation, tags, throttle, error.
VERSIONS = {8: 9, 9: 9, 11: 9, 12: 4, 13: 5, 14: 5}
KEYS = {api.name: key for key, api in APIS.items()}
HEARTBEAT = 12
_SIZE = struct.Struct(">i")
_HEARTBEAT_ERROR_AT = 9
SECONDS = 60.0


Answered = Callable[[memoryview | None], None]  # None: the connection is lost


class Wire(asyncio.Protocol):
    """Requests and answers in order on one connection."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._received = bytearray()
        self._waiting: deque[Answered] = deque()
        self._correlation = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's are none by inheritance

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        while self._waiting:
            self._waiting.popleft()(None)

    def data_received(self, data: bytes) -> None:
        received = self._received
        if not received and len(data) - 4 == _SIZE.unpack_from(data)[0]:
            self._waiting.popleft()(memoryview(data)[4:])  # nearly always one whole answer
            return
        received += data
        while len(received) >= 4 and len(received) >= (end := 4 + _SIZE.unpack_from(received)[0]):
            self._waiting.popleft()(memoryview(bytes(received[4:end])))
            del received[:end]

    def send(self, frame: Buffer, answered: Answered) -> None:
        if self._transport is None:
            raise ConnectionError("the connection is lost")
        self._waiting.append(answered)
        self._transport.write(frame)

    async def ask(self, request: Message, answer: type[M], version: int | None = None) -> M:
        key = KEYS[type(request).__name__.removesuffix("Request")]
        chosen = VERSIONS[key] if version is None else version
        self._correlation += 1
        frame = b"".join(request_frame(key, chosen, self._correlation, "load", encode(request, chosen)))
        future: asyncio.Future[memoryview | None] = asyncio.get_running_loop().create_future()
        self.send(frame, lambda view: None if future.done() else future.set_result(view))
        async with asyncio.timeout(SECONDS):  # wait_for may swallow a cancellation
            view = await future
        if view is None:
            raise ConnectionError("the connection is lost")
        _, position = read_response_header(view, key, chosen)
        message, _ = decode(response_class(key), chosen, view, position)
        assert isinstance(message, answer)
        return message

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def connect(bootstrap: str) -> Wire:
    host, _, port = bootstrap.rpartition(":")
    _, wire = await asyncio.get_running_loop().create_connection(Wire, host, int(port))
    return wire


def subscription(topics: list[str]) -> bytes:
    return b"\x00\x01" + b"".join(encode(ConsumerProtocolSubscription(topics=topics), 1))


Assign = Callable[[list[str]], dict[str, bytes]]  # member ids -> what each is given


class WireMember:
    """Joins, syncs, sends heartbeats; the leader assigns with a function of the caller."""

    def __init__(self, wire: Wire, group: str, metadata: bytes, assign: Assign, **fields: Any) -> None:
        self.wire = wire
        self.group = group
        self.metadata = metadata
        self.assign = assign
        self.fields = {"session_timeout_ms": 45_000, "rebalance_timeout_ms": 60_000} | fields
        self.member_id = ""
        self.generation = -1
        self.leads = False
        self.assignment = b""
        self.heartbeats = 0
        self.rebalancing = False
        self.errors: list[int] = []
        self._beat = b""

    async def rebalance(self) -> None:
        """Joins (again) until an assignment is there."""
        while True:
            joined = await self._join()
            given = self.assign([member.member_id for member in joined.members]) if self.leads else {}
            synced = await self.wire.ask(
                SyncGroupRequest(
                    group_id=self.group,
                    generation_id=self.generation,
                    member_id=self.member_id,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=[
                        SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                        for member_id, assignment in given.items()
                    ],
                ),
                SyncGroupResponse,
            )
            if synced.error_code == ErrorCode.NONE:
                break
            assert synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode(synced.error_code)
        self.assignment = bytes(synced.assignment)
        self.rebalancing = False
        beat = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        self._beat = b"".join(request_frame(HEARTBEAT, VERSIONS[HEARTBEAT], 0, "load", encode(beat, 4)))

    async def _join(self) -> JoinGroupResponse:
        while True:
            joined = await self.wire.ask(
                JoinGroupRequest(
                    group_id=self.group,
                    member_id=self.member_id,
                    protocol_type="consumer",
                    protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=self.metadata)],
                    **self.fields,
                ),
                JoinGroupResponse,
            )
            self.member_id = joined.member_id
            if joined.error_code == ErrorCode.NONE:
                self.generation = joined.generation_id
                self.leads = joined.leader == joined.member_id
                return joined
            assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED, ErrorCode(joined.error_code)

    def heartbeat(self) -> None:
        self.wire.send(self._beat, self._heard)

    def _heard(self, view: memoryview | None) -> None:
        if view is None:
            return
        self.heartbeats += 1
        error = int.from_bytes(view[_HEARTBEAT_ERROR_AT : _HEARTBEAT_ERROR_AT + 2])
        if error == ErrorCode.REBALANCE_IN_PROGRESS:
            self.rebalancing = True
        elif error:
            self.errors.append(error)

    async def leave(self) -> None:
        identity = LeaveGroupRequest.MemberIdentity(member_id=self.member_id)
        await self.wire.ask(LeaveGroupRequest(group_id=self.group, members=[identity]), LeaveGroupResponse)


async def form(members: list[WireMember], fresh: list[WireMember] | None = None) -> None:
    """Until all are in one generation: who has its assignment sends heartbeats and joins again when told to. `fresh`
    are those who begin (all, if it is not given)."""

    async def stay() -> None:
        """For who is in the group already."""

    coming = members if fresh is None else fresh
    tasks = [asyncio.create_task(member.rebalance() if member in coming else stay()) for member in members]
    try:
        while True:
            await asyncio.sleep(0.02)
            for number, member in enumerate(members):
                if not tasks[number].done():
                    continue
                await tasks[number]  # raises what went wrong
                if member.rebalancing:
                    tasks[number] = asyncio.create_task(member.rebalance())
                else:
                    member.heartbeat()
            if all(task.done() for task in tasks) and len({member.generation for member in members}) == 1:
                return
    finally:
        for task in tasks:
            task.cancel()
