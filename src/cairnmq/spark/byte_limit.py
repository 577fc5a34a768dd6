"""How many records a limit in bytes lets through, judged by the next ones of each partition. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from cairnmq.codec.batch import BatchHeader


class Seen(Struct, frozen=True):
    """The next offsets of a partition, and the bytes that they take as they are stored."""

    offsets: int
    bytes: float


def seen(position: int, headers: Iterable[BatchHeader]) -> Seen:
    """What batches from `position` on tell; of the first only a part may lie there."""
    last, size = position, 0.0
    for header in headers:
        end = header.last_offset + 1
        if end > last:
            size += header.size * (end - max(last, header.base_offset)) / (end - header.base_offset)
            last = end
    return Seen(last - position, size)


def records_within(
    left: Mapping[str, Mapping[int, int]], samples: Mapping[str, Mapping[int, Seen]], most: int
) -> int | None:
    """About how many of the records that are left take `most` bytes; None: all of them do, or nothing is known.

    What was seen of a partition stands for all of it, and what was seen of others for one that was not looked at.
    """
    looked_at = [each for parts in samples.values() for each in parts.values() if each.offsets]
    if not looked_at:
        return None
    usual = sum(each.bytes for each in looked_at) / sum(each.offsets for each in looked_at)
    expected = 0.0
    for name, parts in left.items():
        for index, records in parts.items():
            sample = samples.get(name, {}).get(index)
            expected += records * (sample.bytes / sample.offsets if sample is not None and sample.offsets else usual)
    if expected <= most:
        return None
    return max(1, int(sum(sum(parts.values()) for parts in left.values()) * most / expected))
