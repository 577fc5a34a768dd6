"""verify's part for aborted transactions: what is stored of them against a replay of the records. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cairnmq.storage.files.format import Aborted, ProducerRow


def compare_aborted(stored: Iterable[Aborted], replayed: Iterable[Aborted], first_offset: int) -> Iterator[str]:
    """What is wrong. The replay began at `first_offset`: what happened before that it cannot know."""
    known = {row.last: row for row in stored}
    for row in replayed:
        kept = known.pop(row.last, None)
        if kept is None:
            yield f"no row says that records {row.first} to {row.last} of producer {row.producer_id} are aborted"
        elif kept.producer_id != row.producer_id or (kept.first >= first_offset and kept.first != row.first):
            yield f"{_text(kept)} is stored where the records say {_text(row)}"
        elif kept.stable >= first_offset and kept.stable != row.stable:
            yield f"{_text(kept)}: last stable offset {kept.stable}, the records say {row.stable}"
    for kept in known.values():
        if kept.first >= first_offset:
            yield f"{_text(kept)} is stored, but the records do not say so"


def _text(row: Aborted) -> str:
    return f"abort of producer {row.producer_id} from {row.first} to {row.last}"


def compare_open(stored: ProducerRow, replayed: ProducerRow, first_offset: int) -> Iterator[str]:
    """The same for a transaction that was never ended."""
    if stored.txn_start != replayed.txn_start and (stored.txn_start < 0 or stored.txn_start >= first_offset):
        yield (
            f"producer {stored.producer_id}: the checkpoint says that a transaction is open from {stored.txn_start}, "
            f"the records from {replayed.txn_start} (-1: none)"
        )
