"""Requests whose time is up: found by a look now and then, never early, and not when they are done."""

from __future__ import annotations

import asyncio

import pytest

from cairnmq.broker.requests import deadlines as module
from cairnmq.broker.requests.deadlines import Deadlines
from unit.broker.rig import scenario, until


class Waiting:
    def __init__(self) -> None:
        self.ended_at = 0.0

    def expire(self) -> None:
        self.ended_at = asyncio.get_running_loop().time()


class Failing(Waiting):
    def expire(self) -> None:
        raise RuntimeError("a defect")


@scenario
async def test_who_waits_too_long_is_told() -> None:
    loop, deadlines = asyncio.get_running_loop(), Deadlines()
    soon, later, done = Waiting(), Waiting(), Waiting()
    began = loop.time()
    deadlines.add(later, 0.25)
    deadlines.add(done, 0.05)
    deadlines.add(soon, 0.0)
    deadlines.forget(done)
    await until(lambda: later.ended_at)
    assert soon.ended_at and began + 0.25 <= later.ended_at
    assert soon.ended_at <= later.ended_at and not done.ended_at


@scenario
async def test_nothing_runs_while_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    deadlines, one, another = Deadlines(), Waiting(), Waiting()
    deadlines.add(one, 0)
    await until(lambda: one.ended_at)
    assert deadlines._timer is None
    deadlines.add(another, 0)
    await until(lambda: another.ended_at)


@scenario
async def test_one_that_fails_does_not_keep_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    deadlines, failing, other = Deadlines(), Failing(), Waiting()
    deadlines.add(failing, 0)
    deadlines.add(other, 0)
    await until(lambda: other.ended_at)
