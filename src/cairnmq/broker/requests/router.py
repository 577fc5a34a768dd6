"""Which handler serves which api key. What is registered here is advertised, but for messages of our own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from cairnmq.broker.requests.reply import AwaitedReply, Outcome, Reply, Response
from cairnmq.errors import ErrorCode
from cairnmq.types import Buffer
from cairnmq.wire.apis import API_VERSIONS, APIS, INTERNAL_FROM, SERVED, request_class
from cairnmq.wire.codec import decode, encode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import ApiVersionsResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

Handler: TypeAlias = Callable[["Context", RequestHeader, Any], Outcome]
AsyncHandler: TypeAlias = Callable[["Context", RequestHeader, Any], Awaitable[Response]]
RawHandler: TypeAlias = Callable[["Context", RequestHeader, memoryview, int], Outcome]


class Route(Struct, frozen=True):
    """One served API. A version between `advertised_min` and `min` is offered, but the broker hangs up on it."""

    key: int
    name: str
    advertised_min: int
    min: int
    max: int
    call: RawHandler


def as_handler(handler: Handler | AsyncHandler) -> Handler:
    """A coroutine function as a handler whose response comes later."""
    if not iscoroutinefunction(handler):
        return cast(Handler, handler)

    def begin(ctx: Context, header: RequestHeader, request: object) -> Outcome:
        return AwaitedReply(handler(ctx, header, request))

    return begin


def _delayed(call: RawHandler, until: Callable[[], Awaitable[None]]) -> RawHandler:
    async def respond(ctx: Context, header: RequestHeader, frame: memoryview, position: int) -> Response:
        await until()
        return await _respond(call(ctx, header, frame, position))

    def begin(ctx: Context, header: RequestHeader, frame: memoryview, position: int) -> Outcome:
        # The connection receives more into what the frame is a part of.
        return AwaitedReply(respond(ctx, header, memoryview(bytes(frame)), position))

    return begin


async def _respond(outcome: Outcome) -> Response:
    """What a handler responds, now or later."""
    if not isinstance(outcome, Reply):
        return outcome
    if not outcome.done:
        done = asyncio.get_running_loop().create_future()
        outcome.deliver = lambda reply: done.set_result(None)
        await done
    if outcome.failure is not None:
        raise outcome.failure
    return outcome.response


class Router:
    """Filled once at start, read by every connection."""

    def __init__(self) -> None:
        self.routes: dict[int, Route] = {}

    def add(self, key: int, handler: Handler | AsyncHandler) -> None:
        """`handler` gets the decoded request. It may be a coroutine function."""
        cls = request_class(key)
        at_once = as_handler(handler)

        def call(ctx: Context, header: RequestHeader, frame: memoryview, position: int) -> Outcome:
            request, _ = decode(cls, header.api_version, frame, position)
            return at_once(ctx, header, request)

        self.add_raw(key, call)

    def add_raw(self, key: int, handler: RawHandler) -> None:
        """`handler` gets the frame and the position after the header, and decodes by itself (hot paths)."""
        assert key not in self.routes, f"api key {key} is registered twice"
        api = APIS[key]
        low, high = SERVED[key] if key < INTERNAL_FROM else (api.min, api.max)
        self.routes[key] = Route(key, api.name, low, max(low, api.min), high, handler)

    def delay(self, keys: Iterable[int], until: Callable[[], Awaitable[None]]) -> None:
        """Requests of these keys are read when `until` has ended, which begins when they come."""
        for key in keys:
            self.routes[key] = replace(self.routes[key], call=_delayed(self.routes[key].call, until))

    def unsupported_api_versions(self) -> list[Buffer]:
        """KIP-511: a too new ApiVersions gets a response in version 0, naming the range of ApiVersions itself."""
        route = self.routes[API_VERSIONS]
        own = ApiVersionsResponse.ApiVersion(api_key=API_VERSIONS, min_version=route.min, max_version=route.max)
        return encode(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own]), 0)

    def advertised(self) -> list[tuple[int, int, int]]:
        """(api key, min, max) in key order."""
        return [
            (key, route.advertised_min, route.max) for key, route in sorted(self.routes.items()) if key < INTERNAL_FROM
        ]
