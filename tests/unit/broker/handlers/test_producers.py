"""InitProducerId."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.wire.apis import SERVED
from cairnmq.wire.messages import InitProducerIdRequest
from unit.broker.rig import open_rig, scenario

KEY = 22


@pytest.mark.parametrize("version", range(SERVED[KEY][1] + 1))
@scenario
async def test_idempotent_producers_get_numbers_of_their_own(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        answers = [await rig.ask(KEY, version, request) for _ in range(3)]
        assert all((answer.error_code, answer.producer_epoch) == (0, 0) for answer in answers)
        assert len({answer.producer_id for answer in answers}) == 3


@scenario
async def test_never_the_same_number_twice_also_after_a_restart(tmp_path: Path) -> None:
    seen: list[int] = []
    for _ in range(3):
        async with open_rig(tmp_path) as rig:
            answers = await asyncio.gather(
                *(rig.ask(KEY, 4, InitProducerIdRequest(transactional_id=None)) for _ in range(700))
            )
            seen += [answer.producer_id for answer in answers]
    assert len(set(seen)) == 2100 and min(seen) >= 0


@scenario
async def test_a_known_producer_gets_a_fresh_number(tmp_path: Path) -> None:
    """KIP-360 without a transactional id: as in Kafka, the old id and epoch are not continued."""
    async with open_rig(tmp_path) as rig:
        first = await rig.ask(KEY, 4, InitProducerIdRequest(transactional_id=None))
        again = await rig.ask(
            KEY, 4, InitProducerIdRequest(transactional_id=None, producer_id=first.producer_id, producer_epoch=0)
        )
        assert again.error_code == 0 and again.producer_id != first.producer_id
        half = await rig.ask(KEY, 4, InitProducerIdRequest(transactional_id=None, producer_id=first.producer_id))
        assert half.error_code == ErrorCode.INVALID_REQUEST


@scenario
async def test_a_transactional_id_has_epochs(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
        first, second = [await rig.ask(KEY, 4, request) for _ in range(2)]
        assert (first.error_code, first.producer_epoch, second.producer_epoch) == (0, 0, 1)
        assert first.producer_id == second.producer_id
        stale = InitProducerIdRequest(
            transactional_id="t", transaction_timeout_ms=1000, producer_id=first.producer_id, producer_epoch=0
        )
        assert (await rig.ask(KEY, 4, stale)).error_code == ErrorCode.PRODUCER_FENCED
        answer = await rig.ask(KEY, 3, stale)
        assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH, "older clients do not know the other code"
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


@scenario
async def test_what_a_transactional_id_may_not_ask(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        empty = await rig.ask(KEY, 4, InitProducerIdRequest(transactional_id=""))
        assert empty.error_code == ErrorCode.INVALID_REQUEST
        for timeout_ms in (0, -1, rig.ctx.config.transaction_max_timeout_ms + 1):
            long = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=timeout_ms)
            assert (await rig.ask(KEY, 4, long)).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
