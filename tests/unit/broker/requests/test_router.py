"""Registration decides what is served."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cairnmq.broker.requests.reply import AwaitedReply
from cairnmq.broker.requests.router import Router, as_handler
from cairnmq.broker.routes import build_router
from cairnmq.wire.apis import METADATA, PRODUCE, SERVED


def test_the_table_serves_exactly_what_is_promised() -> None:
    assert {key: (low, high) for key, low, high in build_router().advertised()} == SERVED


def test_produce_is_offered_from_0_but_read_from_3() -> None:
    route = build_router().routes[PRODUCE]
    assert (route.advertised_min, route.min, route.max) == (0, 3, 13)


def test_a_key_has_one_handler() -> None:
    router = Router()
    router.add_raw(METADATA, lambda ctx, header, frame, position: None)
    with pytest.raises(AssertionError, match="twice"):
        router.add(METADATA, lambda ctx, header, request: None)


def test_two_brokers_share_no_state() -> None:
    assert build_router().routes[METADATA].call.__self__ is not build_router().routes[METADATA].call.__self__  # type: ignore[attr-defined]


def test_a_coroutine_function_becomes_a_reply() -> None:
    async def later(ctx: Any, header: Any, request: Any) -> Any:
        return request

    async def ask() -> Any:
        nothing: Any = None
        reply = as_handler(later)(nothing, nothing, [b"x"])
        assert isinstance(reply, AwaitedReply) and reply._work is not None
        return await reply._work

    assert asyncio.run(ask()) == [b"x"]
