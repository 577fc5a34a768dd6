"""The ack table (docs/architecture.md): what a producer waits for, what readers wait for, when a sync is due.

Nothing else asks for a topic's flush policy. With replication a third level comes between the two: *replicated*.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from msgspec import Struct

from cairnmq.settings.topic import LogConfig

ACKS_ALL = -1
NONE_FLUSH_MS = 10_000  # `cairn.flush=none` records still go with a checkpoint, which needs them synced
KEYED_FLUSH_MS = 500  # keyed facts that are acknowledged before they are synced


class AckLevel(IntEnum):
    """How safe a journal entry is; each level includes those before it."""

    WRITTEN = 0  # in the page cache: survives kill -9
    SYNCED = 1  # fdatasync returned: survives power loss


class EntryKind(Enum):
    """What an entry is to the ack table."""

    BATCH = 0
    MARKER = 1  # ends a transaction on one queue
    START = 2  # a moved log start, and batches that keep their offsets
    KEYED = 3  # a fact of groups or transactions
    WITNESS = 4  # a fact that repeats what the metadata have on disk


class Durability(Struct, frozen=True):
    """The level at which an entry is acknowledged, and the one at which readers may see it."""

    acknowledged: AckLevel
    visible: AckLevel


class AckPoint(Struct, frozen=True, gc=False):
    """What to wait for: `level` of everything in a journal before position `end`."""

    journal: int
    level: AckLevel
    end: int


WRITTEN, SYNCED = AckLevel.WRITTEN, AckLevel.SYNCED
BATCH, MARKER, START, KEYED, WITNESS = EntryKind
_AT_ONCE = Durability(WRITTEN, WRITTEN)
_SAFE = Durability(SYNCED, SYNCED)
_ACKNOWLEDGED_SAFE = Durability(SYNCED, WRITTEN)


def durability(kind: EntryKind, flush: str, acks: int = ACKS_ALL, *, journals: int = 1) -> Durability:
    """The rule. `flush`: of the topic; of the broker for keyed facts. `journals`: how many there are.

    Order holds within one journal only, and coordinators have their facts in all of them. So with several journals a
    marker is synced before the fact "complete" follows, and a fact before batches that rely on it.
    """
    if kind is WITNESS:
        return _AT_ONCE
    if kind is START or (acks == ACKS_ALL and flush == "commit"):
        return _SAFE
    if journals > 1 and kind in (MARKER, KEYED):
        return _ACKNOWLEDGED_SAFE
    return _AT_ONCE


def sync_within_ms(level: AckLevel, config: LogConfig, acks: int = ACKS_ALL) -> int:
    """How soon an entry of a topic must be synced that is acknowledged at `level`."""
    if level is SYNCED:
        return 0
    return NONE_FLUSH_MS if acks == ACKS_ALL and config.flush == "none" else config.flush_ms
