"""What a transaction expects of a store, compared with what there is; the same for all stores. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cairnmq.metadata.store import EPOCH, Conflict, NextEpoch, Op


def agreed(
    ops: Sequence[Op | NextEpoch], revision: Callable[[str], int], epoch: Callable[[], int]
) -> tuple[list[Op], int | None] | Conflict:
    """The operations on keys, and the epoch that is given out, if any. Or the first expectation that does not hold.
    `revision`: of a key, ABSENT if it is not there; `epoch`: the last one that was given."""
    keyed = [op for op in ops if not isinstance(op, NextEpoch)]
    assert len({op.key for op in keyed}) == len(keyed), "a key occurs twice in one transaction"
    for op in keyed:
        if op.expect is not None and op.expect != (actual := revision(op.key)):
            return Conflict(op.key, op.expect, actual)
    given: int | None = None
    for wanted in (op.epoch for op in ops if isinstance(op, NextEpoch)):
        last = epoch() if given is None else given
        if wanted != last + 1:
            return Conflict(EPOCH, wanted - 1, last)
        given = wanted
    return keyed, given
