"""Topics as groups see them, for tests: made, grown and deleted by hand."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct


class FakeTopic(Struct, frozen=True):
    name: str
    topic_id: bytes
    count: int


class FakeView:
    """Topics as of one moment."""

    def __init__(
        self,
        version: int,
        topics: Mapping[str, FakeTopic],
        group_configs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.version = version
        self.topics: Mapping[str, FakeTopic] = MappingProxyType(dict(topics))
        self.group_configs: Mapping[str, Mapping[str, str]] = MappingProxyType(dict(group_configs or {}))

    def topic(self, name: str) -> FakeTopic | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> FakeTopic | None:
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)


class FakeTopics:
    """What the topics are; `view` is them as of now."""

    def __init__(self) -> None:
        self._topics: dict[str, FakeTopic] = {}
        self._configs: dict[str, dict[str, str]] = {}
        self._changes = 0

    @property
    def view(self) -> FakeView:
        return FakeView(self._changes, self._topics, self._configs)

    def get(self, name: str) -> FakeTopic | None:
        return self._topics.get(name)

    def put(self, name: str, count: int) -> FakeTopic:
        """Makes or grows a topic; one that shrinks is another one of the same name."""
        self._changes += 1
        known = self._topics.get(name)
        grows = known is not None and known.count <= count
        topic_id = known.topic_id if known is not None and grows else self._changes.to_bytes(16, "big")
        self._topics[name] = FakeTopic(name, topic_id, count)
        return self._topics[name]

    def delete(self, name: str) -> None:
        self._changes += 1
        self._topics.pop(name, None)

    def configure(self, group: str, **configs: str) -> None:
        self._changes += 1
        self._configs[group] = {name.replace("_", "."): value for name, value in configs.items()}
