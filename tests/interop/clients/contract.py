"""What a client under test can be asked to do. One class per client; what a client cannot express stands in `lacks`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol

Headers = tuple[tuple[str, bytes | None], ...]
REPLICAS = -1
"""Of topics that clients make: as many as the broker says, 1 on one node and 3 on three."""


class Sent(NamedTuple):
    """A record to produce; partition None leaves the choice to the client."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None
    partition: int | None = 0


class Got(NamedTuple):
    """A record as consumed; a client that does not show something leaves None."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    append_time: bool | None = None


class Refused(Exception):
    """The broker said no, with Kafka's error code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"error {code}: {text}")
        self.code = code


class Reader(Protocol):
    """A consumer that stays."""

    def take(self, count: int, seconds: float = 60.0) -> list[Got]:
        """Up to `count` records; fewer when the time is over."""

    def seek(self, partition: int, offset: int) -> None: ...

    def close(self) -> None: ...


class Client(Protocol):
    """Synchronous on purpose: a case reads top to bottom whatever the client is made of."""

    name: ClassVar[str]
    version: str
    lacks: ClassVar[Mapping[str, str]]
    """need -> why this client cannot express it"""

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        size_max: int = 1_000_000,
    ) -> list[int]:
        """Sends all and waits; the offsets in order, [] if the client does not tell. Raises Refused."""

    def read(
        self, topic: str, partitions: Iterable[int] = (0,), start: int = 0, size_max: int = 1_048_576
    ) -> list[Got]:
        """Everything from `start` (-2: earliest) to the present end."""

    def reader(self, topic: str, partition: int, start: int, wait_ms: int) -> Reader:
        """A consumer that stays; start -1 is the end, wait_ms the longest a fetch may be parked."""

    def partitions(self, topic: str) -> int:
        """By metadata; 0 if there is no such topic. Never creates it."""

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Log start and end."""

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None: ...

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def add_partitions(self, topic: str, total: int) -> None: ...

    def topic_configs(self, topic: str) -> dict[str, str | None]: ...

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None: ...

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """The log start afterwards."""

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None: ...

    def committed(self, group: str, topic: str, partition: int) -> int | None: ...

    def close(self) -> None: ...
