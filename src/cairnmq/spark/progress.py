"""How far a query has come: what a checkpoint keeps, how far a micro-batch goes, what is left. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from cairnmq.spark.errors import DataLoss, SparkSourceError

VERSION = 1


class TopicProgress(Struct, frozen=True):
    """Of one topic, told from another of the same name by its id: the next offset of each partition."""

    id: str
    offsets: dict[int, int]


class Progress(Struct, frozen=True):
    """Everything needed to go on after a restart; topics and partitions are in order, so equal ones have equal JSON."""

    topics: dict[str, TopicProgress]

    def to_json(self) -> dict[str, Any]:
        topics = {
            name: {"id": topic.id, "offsets": {str(index): topic.offsets[index] for index in sorted(topic.offsets)}}
            for name, topic in sorted(self.topics.items())
        }
        return {"v": VERSION, "topics": topics}

    @staticmethod
    def of_json(found: Mapping[str, Any]) -> Progress:
        if found.get("v") != VERSION:
            raise SparkSourceError(
                f"the checkpoint holds offsets of version {found.get('v')}, and this CairnMQ reads version {VERSION}; "
                "was it written by another source or a newer CairnMQ?"
            )
        return Progress(msgspec.convert(found["topics"], dict[str, TopicProgress], strict=False))


def behind(start: Progress, end: Progress) -> dict[str, dict[int, int]]:
    """How many offsets of each partition lie between the two."""
    left = {}
    for name, topic in end.topics.items():
        begun = _same(start, name, topic)
        left[name] = {index: max(0, offset - begun.get(index, 0)) for index, offset in topic.offsets.items()}
    return left


def unknown(start: Progress, latest: Progress) -> dict[str, list[int]]:
    """Partitions that `start` does not know, or knows of another topic with the same name."""
    found = {}
    for name, topic in latest.topics.items():
        begun = _same(start, name, topic)
        new = [index for index in topic.offsets if index not in begun]
        if new:
            found[name] = new
    return found


def continued(start: Progress, latest: Progress, first: Mapping[str, Mapping[int, int]], strict: bool) -> Progress:
    """Where reading on begins: at what `start` says, or at the `first` record of what is unknown to it.

    `latest` says what there is now. What is gone, or is another topic by now, is DataLoss when `strict`; so is what was
    gone of a new partition before the query heard of it.
    """
    for name, known in sorted(start.topics.items()):
        topic = latest.topics.get(name)
        if topic is None and strict:
            raise DataLoss(deleted(name))
        if topic is not None and topic.id != known.id and strict:
            raise DataLoss(made_again(name))
    topics = {}
    for name, topic in latest.topics.items():
        begun = _same(start, name, topic)
        offsets = {}
        for index, end in topic.offsets.items():
            offset = begun[index] if index in begun else first[name][index]
            if index not in begun and offset and strict:
                raise DataLoss(aged_out(name, index, 0, offset))
            if offset > end and strict:
                raise DataLoss(_advice(f"partition {name}-{index} ends at {end}, the query had read up to {offset}"))
            offsets[index] = min(offset, end)
        topics[name] = TopicProgress(topic.id, offsets)
    return Progress(topics)


def _same(start: Progress, name: str, topic: TopicProgress) -> dict[int, int]:
    known = start.topics.get(name)
    return known.offsets if known is not None and known.id == topic.id else {}


def deleted(topic: str) -> str:
    return _advice(f"topic {topic} was deleted while the query was reading it")


def made_again(topic: str) -> str:
    return _advice(f"topic {topic} was deleted and created again; its offsets now belong to other records")


def aged_out(topic: str, partition: int, offset: int, first: int) -> str:
    return _advice(
        f"records of {topic}-{partition} from offset {offset} on are gone: the partition now starts at {first} "
        "(retention or trim was faster than the query)"
    )


def limited(start: Progress, latest: Progress, most: int | None) -> Progress:
    """The end of the next micro-batch: about `most` records in all, shared in proportion to what is left.

    A partition with anything left gets at least one, so that none waits for ever; so the sum may be larger by as many.
    """
    left = behind(start, latest)
    total = sum(sum(part.values()) for part in left.values())
    if most is None or total <= most:
        return latest
    topics = {}
    for name, topic in latest.topics.items():
        offsets = {}
        for index, end in topic.offsets.items():
            share = left[name][index]
            taken = min(share, max(1, most * share // total)) if share else 0
            offsets[index] = end - share + taken
        topics[name] = TopicProgress(topic.id, offsets)
    return Progress(topics)


def capped(latest: Progress, target: Progress) -> Progress:
    """No further than `target`; what it does not name does not exist yet."""
    topics = {}
    for name, topic in latest.topics.items():
        known = target.topics.get(name)
        if known is None or known.id != topic.id:
            continue
        offsets = {
            index: min(end, known.offsets[index]) for index, end in topic.offsets.items() if index in known.offsets
        }
        topics[name] = TopicProgress(topic.id, offsets)
    return Progress(topics)


def lag(source: Mapping[str, Any]) -> dict[str, dict[int, int]]:
    """Records between what a query has read and what there was, from `query.lastProgress["sources"][0]`."""
    read, latest = source.get("endOffset"), source.get("latestOffset")
    if not read or not latest:
        return {}
    done, there = (
        Progress.of_json(msgspec.json.decode(end) if isinstance(end, str) else end) for end in (read, latest)
    )
    return behind(done, there)


def _advice(sentence: str) -> str:
    return f"{sentence}; failOnDataLoss=false continues with the available records"
