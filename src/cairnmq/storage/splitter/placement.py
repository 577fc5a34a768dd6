"""Where a queue's split records go: into packs shared with others, or into segments of its own. Pure.

Packs suit queues that are small or quiet: a round writes one file for all of them. A queue that grows is promoted, and
its later records go into segments; a promoted one that has become small and quiet is demoted.
"""

from __future__ import annotations

from msgspec import Struct

from cairnmq.settings.topic import Model


class Thresholds(Struct, frozen=True):
    """When `auto` changes its mind. While only `few` queues have segments, another one may: they cost little then, and
    Kafka's tools can read them."""

    few: int = 256

    promote_round_bytes: int = 256 << 10  # so much of one round is a stream of its own
    promote_bytes: int = 4 << 20
    demote_bytes: int = 1 << 20


def wants_segments(model: Model, round_bytes: int, packed_bytes: int, segmented: int, at: Thresholds) -> bool:
    """Of a queue that has no segments yet, with `packed_bytes` in packs and `round_bytes` to come, while `segmented`
    queues have segments."""
    if model == "auto":
        return (
            segmented < at.few
            or round_bytes >= at.promote_round_bytes
            or packed_bytes + round_bytes >= at.promote_bytes
        )
    return model == "dedicated"


def wants_packs(model: Model, segment_bytes: int, segmented: int, at: Thresholds) -> bool:
    """Of a queue with segments of this size that nobody has written to for a while."""
    return model != "dedicated" and segment_bytes <= at.demote_bytes and (model == "shared" or segmented > at.few)
