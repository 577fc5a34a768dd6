"""Registration decides what is served."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import pytest

from cairnmq.broker.requests.reply import AwaitedReply, Reply
from cairnmq.broker.requests.router import Router, as_handler
from cairnmq.broker.routes import build_router
from cairnmq.wire.apis import FETCH, LIST_OFFSETS, METADATA, PRODUCE, SERVED


def test_the_table_serves_exactly_what_is_promised() -> None:
    assert {key: (low, high) for key, low, high in build_router(secrets.randbits).advertised()} == SERVED


def test_produce_is_offered_from_0_but_read_from_3() -> None:
    route = build_router(secrets.randbits).routes[PRODUCE]
    assert (route.advertised_min, route.min, route.max) == (0, 3, 13)


def test_a_key_has_one_handler() -> None:
    router = Router()
    router.add_raw(METADATA, lambda ctx, header, frame, position: None)
    with pytest.raises(AssertionError, match="twice"):
        router.add(METADATA, lambda ctx, header, request: None)


def test_two_brokers_share_no_state() -> None:
    one, other = (build_router(secrets.randbits).routes[METADATA].call for _ in range(2))
    assert one.__self__ is not other.__self__  # type: ignore[attr-defined]


def test_delayed_requests_see_what_came_meanwhile() -> None:
    known: list[bytes] = []
    parked = Reply()

    async def until() -> None:
        await asyncio.sleep(0)
        known.append(b"news")

    async def answer_later(ctx: Any, header: Any, request: Any) -> Any:
        await asyncio.sleep(0)
        return [*known]

    async def ask(key: int) -> Any:
        nothing: Any = None
        frame = bytearray(b"request")
        reply = router.routes[key].call(nothing, nothing, memoryview(frame), 3)
        frame[:] = b"another"  # what the connection receives next
        assert isinstance(reply, AwaitedReply) and reply._work is not None
        asyncio.get_running_loop().call_later(0.01, lambda: parked.open and parked.complete([b"at last"]))
        return await reply._work

    router = Router()
    router.add_raw(METADATA, lambda ctx, header, frame, position: [*known, bytes(frame[position:])])
    router.add_raw(LIST_OFFSETS, lambda ctx, header, frame, position: AwaitedReply(answer_later(ctx, header, frame)))
    router.add_raw(FETCH, lambda ctx, header, frame, position: parked)
    at_once = router.routes[FETCH].call
    router.delay([METADATA, LIST_OFFSETS], until)
    assert router.routes[FETCH].call is at_once
    assert asyncio.run(ask(METADATA)) == [b"news", b"uest"]
    assert asyncio.run(ask(LIST_OFFSETS)) == [b"news", b"news"]
    router.delay([FETCH], until)
    assert asyncio.run(ask(FETCH)) == [b"at last"], "one that is parked, too"
    parked = Reply()
    parked.fail(ValueError("of the handler"))
    with pytest.raises(ValueError, match="of the handler"):
        asyncio.run(ask(FETCH))


def test_a_coroutine_function_becomes_a_reply() -> None:
    async def later(ctx: Any, header: Any, request: Any) -> Any:
        return request

    async def ask() -> Any:
        nothing: Any = None
        reply = as_handler(later)(nothing, nothing, [b"x"])
        assert isinstance(reply, AwaitedReply) and reply._work is not None
        return await reply._work

    assert asyncio.run(ask()) == [b"x"]
