"""One change of the metadata at a time, and clients that wait for theirs no longer than they said."""

from __future__ import annotations

import asyncio
import logging

import pytest

from cairnmq.broker import metadata_turn
from cairnmq.broker.metadata_turn import MetadataTurn, TimeLimit
from cairnmq.errors import ErrorCode, Fault, Refusal
from unit.broker.rig import scenario, until

LONG, SHORT = 60_000, 1  # ms


class Changes:
    """What was begun and what was made; each takes until `go_on` is set."""

    def __init__(self) -> None:
        self.turn = MetadataTurn()
        self.go_on = asyncio.Event()
        self.begun: list[str] = []
        self.made: list[str] = []

    async def change(self, name: str) -> str:
        async with self.turn:
            self.begun.append(name)
            await self.go_on.wait()
            self.made.append(name)
        return name

    async def ask(self, name: str, timeout_ms: int) -> str | Refusal:
        return await self.turn.within(TimeLimit(timeout_ms), lambda: self.change(name))


@scenario
async def test_a_change_that_is_made_in_time() -> None:
    changes = Changes()
    changes.go_on.set()
    assert [await changes.ask("a", LONG), await changes.ask("b", LONG)] == ["a", "b"]
    assert not changes.turn._waiting and not changes.turn._late


@scenario
async def test_a_change_that_has_begun_goes_on_without_its_client() -> None:
    changes = Changes()
    refusal = await changes.ask("a", SHORT)
    assert isinstance(refusal, Refusal) and refusal.code == ErrorCode.REQUEST_TIMED_OUT
    assert refusal.message == "the metadata store did not take the change within timeout_ms=1; it may be made later"
    assert (changes.begun, changes.made) == (["a"], [])
    changes.go_on.set()
    await until(lambda: changes.made == ["a"] and not changes.turn._late)


@scenario
async def test_a_change_that_still_waits_for_its_turn_is_dropped() -> None:
    """However often clients ask again, there is one change that nobody waits for."""
    changes = Changes()
    await changes.ask("a", SHORT)
    for name in "bcd":
        refusal = await changes.ask(name, SHORT)
        assert isinstance(refusal, Refusal) and refusal.message.endswith("; it is not made")
    patient = asyncio.ensure_future(changes.ask("e", LONG))
    await until(lambda: len(changes.turn._waiting) == len(changes.turn._late) == 1)
    changes.go_on.set()
    assert await patient == "e"
    assert changes.made == ["a", "e"] == changes.begun and not changes.turn._waiting


@scenario
async def test_a_change_whose_turn_is_over_is_not_dropped() -> None:
    """Deleting a topic goes on when others may change the metadata again."""
    turn, go_on, made = MetadataTurn(), asyncio.Event(), list[str]()

    async def change() -> None:
        async with turn:
            pass
        await go_on.wait()
        made.append("all of it")

    refusal = await turn.within(TimeLimit(SHORT), change)
    assert isinstance(refusal, Refusal) and "it may be made later" in refusal.message
    go_on.set()
    await until(lambda: made == ["all of it"])


@scenario
async def test_what_comes_when_the_time_is_over_is_not_begun() -> None:
    """The second of two topics of one request."""
    changes, limit = Changes(), TimeLimit(SHORT)
    for name in "ab":
        assert isinstance(await changes.turn.within(limit, lambda name=name: changes.change(name)), Refusal)  # type: ignore[misc]
    assert changes.begun == ["a"] and not limit.left
    changes.go_on.set()
    await changes.turn.close()


@scenario
async def test_a_request_that_gives_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_turn, "UNSAID_SECONDS", 0.001)
    changes = Changes()
    for timeout_ms in (0, -1):
        refusal = await changes.ask("a", timeout_ms)
        assert isinstance(refusal, Refusal) and "within 0.001 s" in refusal.message
    changes.go_on.set()
    await changes.turn.close()


@scenario
async def test_a_client_that_is_gone_takes_no_change_with_it() -> None:
    changes = Changes()
    asked = asyncio.ensure_future(changes.ask("a", LONG))
    await until(lambda: changes.begun == ["a"])
    asked.cancel()
    await asyncio.wait([asked])
    changes.go_on.set()
    await until(lambda: changes.made == ["a"])


@scenario
async def test_errors_reach_the_client_or_the_log(caplog: pytest.LogCaptureFixture) -> None:
    turn, go_on = MetadataTurn(), asyncio.Event()

    async def fails(error: Exception) -> None:
        async with turn:
            await go_on.wait()
            raise error

    caplog.set_level(logging.WARNING)
    await turn.within(TimeLimit(SHORT), lambda: fails(Fault("the disk is full")))
    go_on.set()
    await until(lambda: not turn._late)
    assert "was not made: the disk is full" in caplog.text
    go_on.clear()
    await turn.within(TimeLimit(SHORT), lambda: fails(ValueError("a defect")))
    go_on.set()
    await until(lambda: not turn._late)
    assert "ValueError: a defect" in caplog.text
    with pytest.raises(Fault, match="the disk is full"):
        await turn.within(TimeLimit(LONG), lambda: fails(Fault("the disk is full")))


@scenario
async def test_nobody_waits_for_a_slow_store_at_the_end() -> None:
    changes = Changes()
    await changes.ask("a", SHORT)
    await changes.turn.close()
    assert not changes.turn._late and changes.made == []
