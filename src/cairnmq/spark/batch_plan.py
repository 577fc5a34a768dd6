"""What a batch query reads: its options and the topics of the moment in, ranges for tasks out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cairnmq.client.records import LATEST
from cairnmq.spark.errors import DataLoss
from cairnmq.spark.options import ReadOptions
from cairnmq.spark.position import Lookup, Offsets, Position, resolve
from cairnmq.spark.progress import Progress, TopicProgress
from cairnmq.spark.ranges import Range, ranges_between, tasks

Topics = Mapping[str, tuple[str, Sequence[int]]]
"""Name -> id and partitions."""


def starting(options: ReadOptions, topics: Topics, lookup: Lookup) -> Progress:
    """Where a query begins."""
    found = _resolved("startingOffsets", options.starting, options, topics, lookup, options.late_is_latest)
    return _progress(topics, found)


def plan_batch(options: ReadOptions, topics: Topics, lookup: Lookup) -> list[tuple[Range, ...]]:
    """Ranges of each task; an end before its start reads nothing."""
    start = starting(options, topics, lookup)
    # A time behind the last record ends there: unlike a start, that leaves nothing open.
    end = _progress(topics, _resolved("endingOffsets", options.ending, options, topics, lookup, True))
    return tasks(ranges_between(start, end), options.min_partitions, options.max_records)


def _resolved(
    option: str, position: Position, options: ReadOptions, topics: Topics, lookup: Lookup, late_is_latest: bool
) -> Offsets:
    partitions = {name: indexes for name, (_, indexes) in topics.items()}
    found = resolve(option, position, partitions, lookup, late_is_latest=late_is_latest)
    if position.kind != "offsets":
        return found
    for name, offsets in found.items():
        ends = lookup(name, list(offsets), LATEST)
        for index, offset in offsets.items():
            if offset > ends[index] and options.fail_on_data_loss:
                raise DataLoss(
                    f"{option} asks for {name}-{index} at offset {offset}, but the partition ends at {ends[index]}; "
                    "failOnDataLoss=false stops at the end"
                )
            offsets[index] = min(offset, ends[index])
    return found


def _progress(topics: Topics, offsets: Offsets) -> Progress:
    return Progress(
        {name: TopicProgress(topic_id, dict(sorted(offsets[name].items()))) for name, (topic_id, _) in topics.items()}
    )
