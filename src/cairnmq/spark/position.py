"""Where reading begins or ends, as options say it: earliest, latest, offsets or times. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from cairnmq.client.records import EARLIEST, LATEST
from cairnmq.spark.errors import OptionError

Offsets: TypeAlias = dict[str, dict[int, int]]  # topic -> partition -> offset
Lookup: TypeAlias = Callable[[str, Sequence[int], int], Mapping[int, int]]
"""Topic, partitions and a time (or EARLIEST, LATEST) -> offsets; -1 where no record is that late."""

_NOT_FOUND = -1


class Position(Struct, frozen=True):
    """`offsets` holds offsets or times by partition, `timestamp` one time for all of them."""

    kind: Literal["earliest", "latest", "offsets", "timestamp", "timestamps"]
    offsets: Offsets = {}
    timestamp: int = 0


def parse_position(name: str, text: str) -> Position:
    """`earliest`, `latest`, or JSON like {"topic": {"0": 23, "1": -2}}."""
    word = text.strip().lower()
    if word == "earliest":
        return Position("earliest")
    if word == "latest":
        return Position("latest")
    return Position("offsets", parse_offsets(name, text, least=EARLIEST))


def parse_offsets(name: str, text: str, *, least: int) -> Offsets:
    """JSON of topic, partition and number, as Spark's Kafka source takes it."""
    try:
        found = msgspec.json.decode(text, type=dict[str, dict[int, int]], strict=False)
    except msgspec.DecodeError as error:
        raise OptionError(
            f'option {name} is not valid: {error}; write earliest, latest or JSON like {{"topic": {{"0": 23}}}}'
        ) from None
    for topic, partitions in found.items():
        for partition, number in partitions.items():
            if partition < 0 or number < least:
                raise OptionError(f"{name}: {topic}-{partition} cannot be at {number}")
    return found


def resolve(
    option: str,
    position: Position,
    partitions: Mapping[str, Sequence[int]],
    lookup: Lookup,
    *,
    late_is_latest: bool = False,
) -> Offsets:
    """The offset of each partition. `late_is_latest`: a time without a record that late stands for the end."""
    match position.kind:
        case "earliest" | "latest":
            time = EARLIEST if position.kind == "earliest" else LATEST
            return {topic: dict(lookup(topic, indexes, time)) for topic, indexes in partitions.items()}
        case "timestamp":
            wanted = {topic: dict.fromkeys(indexes, position.timestamp) for topic, indexes in partitions.items()}
            return _by_time(option, wanted, lookup, late_is_latest)
        case "timestamps":
            _check_complete(option, position.offsets, partitions)
            return _by_time(option, position.offsets, lookup, late_is_latest)
        case "offsets":
            _check_complete(option, position.offsets, partitions)
            found: Offsets = {}
            for topic, offsets in position.offsets.items():
                found[topic] = dict(offsets)
                for special in (EARLIEST, LATEST):
                    named = [index for index, offset in offsets.items() if offset == special]
                    if named:
                        found[topic].update(lookup(topic, named, special))
            return found


def _by_time(option: str, wanted: Offsets, lookup: Lookup, late_is_latest: bool) -> Offsets:
    found: Offsets = {}
    for topic, times in wanted.items():
        found[topic] = {}
        for time in sorted(set(times.values())):
            indexes = [index for index, each in times.items() if each == time]
            found[topic].update(lookup(topic, indexes, time))
        late = [index for index, offset in found[topic].items() if offset == _NOT_FOUND]
        if late and not late_is_latest:
            raise OptionError(
                f"{option}: partition {topic}-{late[0]} has no record at or after {times[late[0]]}; "
                "startingOffsetsByTimestampStrategy=latest starts at its end instead"
            )
        if late:
            found[topic].update(lookup(topic, late, LATEST))
    return found


def _check_complete(option: str, named: Offsets, partitions: Mapping[str, Sequence[int]]) -> None:
    wanted = {(topic, index) for topic, indexes in partitions.items() for index in indexes}
    given = {(topic, index) for topic, offsets in named.items() for index in offsets}
    for topic, index in sorted(wanted - given):
        raise OptionError(f"{option} names offsets, so it must name all partitions; {topic}-{index} is missing")
    for topic, index in sorted(given - wanted):
        raise OptionError(f"{option} names {topic}-{index}, which this query does not read")
