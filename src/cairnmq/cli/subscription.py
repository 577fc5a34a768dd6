"""What `cairn consume` reads at any moment: chosen partitions, topics that match a pattern, or a member's share."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from cairnmq.cli.offset_spec import START, OffsetSpec
from cairnmq.cli.reader import Reader
from cairnmq.cli.terminal import warn
from cairnmq.cli.topic_choice import Choice, chosen
from cairnmq.types import TopicPartition

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client
    from cairnmq.client.membership import Member

COMMIT_EVERY_SECONDS = 5.0
TOPICS_EVERY_SECONDS = 10.0  # how often patterns are compared with the topics that exist
NO_PARTITIONS_SECONDS = 10.0  # after which a member that may stop at the end stops without having any


class Subscription(Protocol):
    """Keeps a reader's partitions up to date."""

    def step(self) -> None:
        """Between two rounds of reading: everything that was read is printed."""

    @property
    def done(self) -> bool: ...

    def close(self) -> None:
        """The last step; also when reading failed."""


class Topics:
    """The topics that the words of a command line mean; with patterns the answer changes as topics come."""

    def __init__(self, client: Client, choices: Sequence[Choice]) -> None:
        self._client = client
        self._choices = choices
        self._next = 0.0

    def find(self) -> dict[str, list[int]]:
        """Topic -> partitions; ClientError if a name, or all of them together, mean nothing."""
        from cairnmq.client.errors import ClientError

        names = [choice.text for choice in self._choices if choice.pattern is None]
        if len(names) < len(self._choices):
            patterns = [choice for choice in self._choices if choice.pattern is not None]
            existing = self._client.metadata(None).topics.values()
            names += chosen(patterns, (topic.name for topic in existing if not topic.internal and not topic.error))
        if not names:
            words = ", ".join(choice.text for choice in self._choices)
            raise ClientError(f"no topic matches {words}; `cairn topic list` shows what exists")
        self._next = time.monotonic() + TOPICS_EVERY_SECONDS
        return {name: [each.index for each in self._client.topic(name).partitions] for name in dict.fromkeys(names)}

    @property
    def outdated(self) -> bool:
        return time.monotonic() >= self._next and any(choice.pattern is not None for choice in self._choices)


class Alone:
    """Reads every partition itself, or those that were asked for. With a group it commits, and does not join."""

    def __init__(self, client: Client, topics: Topics, reader: Reader, partitions: Sequence[int], group: str | None):
        self._topics = topics
        self._reader = reader
        self._wanted = partitions
        self._committer = None if group is None else Committer(client, group, reader)
        places = self._find()
        committed = {} if group is None else client.offset_fetch(group, places)
        reader.add(places, committed)
        if self._committer is not None:
            self._committer.begin(committed)

    def step(self) -> None:
        if self._committer is not None:
            self._committer.step()
        if self._topics.outdated:
            new = [place for place in self._find() if place not in self._reader.positions]
            self._reader.add(new, start=OffsetSpec(START))  # all of it came while we were reading

    @property
    def done(self) -> bool:
        return self._reader.finished

    def close(self) -> None:
        if self._committer is not None:
            self._committer.commit()

    def _find(self) -> list[TopicPartition]:
        found = self._topics.find()
        return [TopicPartition(name, index) for name, known in found.items() for index in self._wanted or known]


class Joined:
    """Reads what the group assigns to this member, and commits."""

    def __init__(self, client: Client, topics: Topics, reader: Reader, group: str) -> None:
        from cairnmq.client.membership import Member

        self._client = client
        self._topics = topics
        self._reader = reader
        self._member = Member(group, str(uuid.uuid4()), topics.find())
        self._committer = Committer(client, group, reader, self._member)
        self._empty_since = time.monotonic()
        self._removals = 0
        self.step()

    def step(self) -> None:
        if self._topics.outdated:
            self._member.subscribe(self._topics.find())
        self._committer.step()
        while self._member.due(time.monotonic()):
            self._client.heartbeat(self._member)
            self._follow()

    @property
    def done(self) -> bool:
        if self._reader.positions:
            self._empty_since = time.monotonic()
            return self._reader.finished
        if not self._reader.finished or time.monotonic() - self._empty_since < NO_PARTITIONS_SECONDS:
            return False
        warn(f"group {self._member.group} gave this member no partitions: other members have them all")
        return True

    def close(self) -> None:
        from cairnmq.client.errors import ClientError

        try:
            self._committer.commit()
        finally:
            with suppress(ClientError):  # the group finds out by itself, later
                self._client.leave_group(self._member)

    def _follow(self) -> None:
        """What is taken away is committed before the group hears that it is free."""
        if self._member.removals > self._removals:
            self._removals = self._member.removals
            self._committer.forget()
            self._reader.drop(list(self._reader.positions))
            warn(f"group {self._member.group} removed this member; rejoining, some messages may be printed twice")
            return
        if self._member.target == self._member.owned:
            return
        places = self._client.named_partitions(self._member.target)
        lost = self._reader.positions.keys() - set(places)
        if lost:
            self._committer.commit()
            self._reader.drop(lost)
        new = [place for place in places if place not in self._reader.positions]
        if new:
            committed = self._client.offset_fetch(self._member.group, new)
            self._reader.add(new, committed)
            self._committer.begin(committed)
        self._member.follow()


class Committer:
    """Commits what was printed, now and then and at the end."""

    def __init__(self, client: Client, group: str, reader: Reader, member: Member | None = None) -> None:
        self._client = client
        self._group = group
        self._reader = reader
        self._member = member
        self._printed: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._next = time.monotonic() + COMMIT_EVERY_SECONDS

    def begin(self, committed: Mapping[TopicPartition, int]) -> None:
        """Where the group stands in partitions that are read from now on."""
        self._committed.update(committed)

    def step(self) -> None:
        self._printed = dict(self._reader.positions)
        if time.monotonic() >= self._next:
            self.commit()

    def forget(self) -> None:
        self._printed.clear()
        self._committed.clear()

    def commit(self) -> None:
        changed = {place: offset for place, offset in self._printed.items() if self._committed.get(place) != offset}
        if changed:
            self._store(changed)
            self._committed.update(changed)
        self._next = time.monotonic() + COMMIT_EVERY_SECONDS

    def _store(self, changed: dict[TopicPartition, int]) -> None:
        from cairnmq.client.errors import Refused
        from cairnmq.errors import ErrorCode

        try:
            self._client.offset_commit(self._group, changed, self._member)
        except Refused as refused:
            if self._member is None or refused.code != ErrorCode.STALE_MEMBER_EPOCH:
                raise
            self._client.heartbeat(self._member)  # the group has moved on, and tells how far
            self._client.offset_commit(self._group, changed, self._member)
