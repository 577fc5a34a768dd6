"""Every served API in every version, with requests that nobody would send on purpose.

Whatever can be decoded is answered in its own version, or hung up on by decision; no handler fails. And the rule that
Java's clients taught: an answer holds empty arrays, not null, unless null has a meaning.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from cairnmq.broker.requests.reply import AwaitedReply, CloseConnection, Reply
from cairnmq.wire.apis import APIS, SERVED, request_class, response_class
from cairnmq.wire.codec import Malformed, decode, encode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import Message
from cairnmq.wire.notation import SHAPES, Field, Shape
from unit.broker.rig import Rig, batch, open_rig, scenario, until

TRIES = 60
TEXTS = ["", "a", "a", "b", "1", "g", "user", "none", "a b", "x" * 300, "__consumer_offsets", "retention.ms", "ä\0"]
NUMBERS = [-(2**63), -(2**31), -7, -2, -1, 0, 0, 1, 1, 2, 3, 5, 32, 77, 2**31 - 1, 2**31, 2**63 - 1]
BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
PLAIN = batch(b"x")

# Where null says something that an empty array would not.
MEANINGFUL_NULLS = {
    ("FetchResponse", "aborted_transactions"),  # asked with read_uncommitted
}


class Odd:
    """Makes requests from a seed: known and unknown names, ends of ranges, empty and doubled arrays."""

    def __init__(self, seed: str, topic_id: bytes) -> None:
        self._random = random.Random(seed)
        self._ids = [bytes(16), topic_id, topic_id, b"unknown unknown!"]

    def request(self, key: int, version: int) -> Message:
        shape = SHAPES[APIS[key].name + "Request"]
        made: Message = self._struct(shape, "", request_class(key), version)
        return made

    def _struct(self, shape: Shape, name: str, outer: type[Message], version: int) -> Any:
        made = getattr(outer, name) if name else outer
        fields = shape.structs[name] if name else shape.fields
        return made(**{f.name: self._value(shape, f, outer, version) for f in fields if version in f.versions})

    def _value(self, shape: Shape, field: Field, outer: type[Message], version: int) -> Any:
        if field.may_be_null(version) and self._random.random() < 0.3:
            return None
        if not field.array:
            return self._one(shape, field, outer, version)
        return [self._one(shape, field, outer, version) for _ in range(self._random.choice([0, 1, 1, 2, 3]))]

    def _one(self, shape: Shape, field: Field, outer: type[Message], version: int) -> Any:
        pick = self._random.choice
        if field.is_struct:
            return self._struct(shape, field.type, outer, version)
        if field.type in BITS:
            limit = 1 << (BITS[field.type] - 1)
            return pick([number for number in NUMBERS if -limit <= number < limit])
        others: dict[str, list[Any]] = {
            "bool": [False, True],
            "str": TEXTS,
            "uuid": self._ids,
            "u16": [0, 1, 65535],
            "f64": [-1.0, 0.0, 1.5, 1e300],
            "records": [b"", b"noise" * 30, PLAIN, PLAIN],
            "bytes": [b"", b"\0", b"\xff" * 40],
        }
        return pick(others[field.type])


async def answer(rig: Rig, key: int, version: int, request: Message) -> Message | None:
    """None: no answer, hung up by decision, or parked (and then given up, as when the client leaves)."""
    frame = memoryview(bytearray(b"".join(encode(request, version))))
    try:
        outcome: Any = rig.ctx.router.routes[key].call(rig.ctx, RequestHeader(key, version, 1, "odd"), frame, 0)
        if isinstance(outcome, Reply):
            if isinstance(outcome, AwaitedReply):
                await until(lambda: outcome.done)
            await asyncio.sleep(0)
            if not outcome.done:
                outcome.abandon()
                return None
            if outcome.failure is not None:
                raise outcome.failure
            outcome = outcome.response
    except (CloseConnection, Malformed):
        return None
    if outcome is None:
        return None
    body = b"".join(outcome if isinstance(outcome, list) else encode(outcome, version))
    message, end = decode(response_class(key), version, body)
    assert end == len(body), "bytes behind the answer"
    return message


def null_arrays(message: Any, shape: Shape, name: str, version: int) -> list[str]:
    """Names of the arrays that are null."""
    found: list[str] = []
    for field in shape.structs[name] if name else shape.fields:
        value = getattr(message, field.name)
        if version not in field.versions:
            continue
        if field.array and value is None:
            found.append(field.name)
        elif field.is_struct and value is not None:
            for item in value if field.array else [value]:
                found += null_arrays(item, shape, field.type, version)
    return found


@pytest.mark.parametrize("key", SERVED, ids=lambda key: APIS[key].name)
@scenario
async def test_odd_requests_are_answered(tmp_path: Path, key: int) -> None:
    async with open_rig(tmp_path) as rig:
        topic = await rig.create("a", partitions=3)
        await rig.produce("a", batch(b"x", b"y"), partition=1)
        shape = SHAPES[response_class(key).__name__]
        answered = 0
        for number in range(TRIES):
            version = max(SERVED[key][0], APIS[key].min) + number % (APIS[key].max - APIS[key].min + 1)
            odd = Odd(f"{key} {number}", topic.topic_id)
            request = odd.request(key, version)
            told = await answer(rig, key, version, request)
            if told is None:
                continue
            answered += 1
            nulls = {(shape.name, each) for each in null_arrays(told, shape, "", version)} - MEANINGFUL_NULLS
            assert not nulls, f"version {version} answers {request} with null"
        assert answered > TRIES // 10, "the requests are too odd to show anything"
        await asyncio.sleep(0)


@pytest.mark.parametrize("key", SERVED, ids=lambda key: APIS[key].name)
@scenario
async def test_a_request_about_nothing_is_answered_with_nothing(tmp_path: Path, key: int) -> None:
    """Every array empty, every text empty: at worst an error, never a failure and never a null array."""
    async with open_rig(tmp_path) as rig:
        shape = SHAPES[response_class(key).__name__]
        for version in range(APIS[key].min, APIS[key].max + 1):
            told = await answer(rig, key, version, request_class(key)())
            if told is not None:
                assert null_arrays(told, shape, "", version) == [], version
