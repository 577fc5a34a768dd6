"""What coordinators decide with: groups and transactions as they are stored, and the one log through which they change.

The broker and the simulator load both here, so they cannot differ in what a start makes of stored facts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct

from cairnmq.broker.coordination.fact_log import FactLog, Put
from cairnmq.broker.coordination.slot_keys import place_of
from cairnmq.decision import KeyedRecord
from cairnmq.groups.groups import Groups
from cairnmq.groups.messages import ConsumerLimits
from cairnmq.groups.messages import Limits as GroupLimits
from cairnmq.groups.offsets import SPACE as OFFSET_SPACE
from cairnmq.groups.offsets import Offsets
from cairnmq.groups.pending import SPACE as PENDING_SPACE
from cairnmq.groups.stored_consumer_group import MEMBER_SPACE
from cairnmq.groups.stored_group import SPACE as GROUP_SPACE
from cairnmq.settings.broker import BrokerConfig
from cairnmq.storage.api.serving import LOSSES
from cairnmq.transactions.messages import Limits as TransactionLimits
from cairnmq.transactions.record import SPACE as TRANSACTION_SPACE
from cairnmq.transactions.transactions import Transactions
from cairnmq.types import Slots


class Cores(Struct, frozen=True, eq=False):
    """`facts` applies to both, and nothing else does."""

    groups: Groups
    transactions: Transactions
    facts: FactLog

    @classmethod
    def load(
        cls,
        keyed: Mapping[tuple[str, bytes], bytes],
        put: Put,
        *,
        slots: Slots,
        journal: int | None = None,
        epoch: int,
        unclean_epoch: int = 0,
        group_limits: GroupLimits,
        transaction_limits: TransactionLimits,
    ) -> Cores:
        """Of the slots in one journal, from the keyed facts that are stored. `put` stores new ones in `slots`, `epoch`
        is the one under which the journal is led, `unclean_epoch` the last one whose leader may have lacked facts."""
        stored: defaultdict[str, list[tuple[bytes, bytes]]] = defaultdict(list)
        for (space, key), value in _facts_in(keyed, slots, journal):
            stored[space].append((key, value))
        offsets = Offsets.load(stored[OFFSET_SPACE])
        groups = Groups.load(stored[GROUP_SPACE], offsets, group_limits, stored[MEMBER_SPACE])
        for key, value in stored[PENDING_SPACE]:
            groups.apply((PENDING_SPACE, key, value))
        transactions = Transactions.load(
            stored[TRANSACTION_SPACE],
            transaction_limits,
            epoch=epoch,
            # A repair of the checkpoint is a loss without an epoch: it keeps no record that may be too old.
            lost_epoch=max(unclean_epoch - 1, *(int(key) for key, _ in stored[LOSSES] if key.isdigit()), -1),
        )

        def apply(fact: KeyedRecord) -> None:
            (transactions if fact[0] == TRANSACTION_SPACE else groups).apply(fact)

        def slot_of(fact: KeyedRecord) -> int:
            place = place_of(slots, fact[0], fact[1])
            assert place is not None, f"a fact of {fact[0]!r} is not a coordinator's"
            return place.queue_id

        return cls(groups, transactions, FactLog(put, apply, slot_of))


def _facts_in(
    keyed: Mapping[tuple[str, bytes], bytes], slots: Slots, journal: int | None
) -> Iterable[tuple[tuple[str, bytes], bytes]]:
    """Facts of the coordinators of a journal, and those of the node."""
    if journal is None or set(slots.cycle) == {journal}:
        return keyed.items()
    found = ((fact, value, place_of(slots, *fact)) for fact, value in keyed.items())
    return ((fact, value) for fact, value, place in found if place is None or place.journal == journal)


def group_limits(config: BrokerConfig) -> GroupLimits:
    return GroupLimits(
        groups_max=config.cairn_groups_max,
        metadata_max=config.offset_metadata_max_bytes,
        session_min_ms=config.group_min_session_timeout_ms,
        session_max_ms=config.group_max_session_timeout_ms,
        initial_delay_ms=config.group_initial_rebalance_delay_ms,
        size_max=config.group_max_size,
        consumer=ConsumerLimits(
            session_ms=config.group_consumer_session_timeout_ms,
            interval_ms=config.group_consumer_heartbeat_interval_ms,
            size_max=config.group_consumer_max_size,
            assignors=config.group_consumer_assignors,
            may_upgrade=config.group_consumer_migration_policy in ("bidirectional", "upgrade"),
            may_downgrade=config.group_consumer_migration_policy in ("bidirectional", "downgrade"),
        ),
    )


def transaction_limits(config: BrokerConfig) -> TransactionLimits:
    return TransactionLimits(
        timeout_max_ms=config.transaction_max_timeout_ms,
        expiration_ms=config.transactional_id_expiration_ms,
        ids_max=config.cairn_transactional_ids_max,
    )
