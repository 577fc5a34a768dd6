"""What a start makes of stored facts."""

from __future__ import annotations

from cairnmq.broker.coordination.cores import Cores, group_limits, transaction_limits
from cairnmq.broker.coordination.fact_log import Put
from cairnmq.groups import pending
from cairnmq.groups.offsets import Committed, OffsetKey, put
from cairnmq.settings.broker import BrokerConfig
from cairnmq.storage.api.serving import LOSSES
from cairnmq.transactions import record
from cairnmq.transactions.record import State, TransactionRecord
from cairnmq.types import Slots

TOPIC = b"t" * 16


def loaded(*facts: tuple[str, bytes, bytes | None], store: Put = lambda facts, stored: stored(None)) -> Cores:
    config = BrokerConfig()
    return Cores.load(
        {(space, key): value or b"" for space, key, value in facts},
        store,
        slots=Slots(30, 24, (0,)),
        epoch=9,
        group_limits=group_limits(config),
        transaction_limits=transaction_limits(config),
    )


def test_every_kind_of_fact_is_loaded() -> None:
    open_one = TransactionRecord(5, 0, State.EMPTY, 1000, 0)
    cores = loaded(
        put(OffsetKey("g", TOPIC, 0), Committed(2)),
        pending.put(pending.PendingKey("g", 5, TOPIC, 0), Committed(3)),
        record.put("x", open_one),
        (LOSSES, b"4", b"{}"),
        ("space of a later version", b"key", b"value"),
    )
    assert cores.groups.offsets.topics("g") == {TOPIC: {0: Committed(2)}}
    assert [key.producer_id for key in cores.groups.pending._keys()] == [5]
    assert set(cores.transactions._stored) == {"x"}


def test_the_log_applies_a_fact_where_it_belongs() -> None:
    cores = loaded()
    cores.facts.submit([put(OffsetKey("g", TOPIC, 0), Committed(2))], lambda fault: None)
    cores.facts.submit([record.put("x", TransactionRecord(5, 0, State.EMPTY, 1000, 0))], lambda fault: None)
    assert cores.groups.offsets.topics("g") and set(cores.transactions._stored) == {"x"}


def test_limits_are_those_of_the_settings() -> None:
    config = BrokerConfig(group_consumer_migration_policy="upgrade", cairn_groups_max=3, cairn_transactional_ids_max=4)
    limits = group_limits(config)
    assert (limits.groups_max, limits.consumer.may_upgrade, limits.consumer.may_downgrade) == (3, True, False)
    assert transaction_limits(config).ids_max == 4
