"""What groups see of topics: names, ids, numbers of partitions. The broker's metadata image is one of these."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol


class TopicLike(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> bytes: ...

    @property
    def count(self) -> int: ...


class TopicView(Protocol):
    """All topics as of one moment: a value that is replaced, never changed. Of another `version` it may differ."""

    @property
    def version(self) -> int: ...

    @property
    def topics(self) -> Mapping[str, TopicLike]: ...

    @property
    def group_configs(self) -> Mapping[str, Mapping[str, str]]: ...

    def topic(self, name: str) -> TopicLike | None: ...

    def topic_by_id(self, topic_id: bytes) -> TopicLike | None: ...


class NoTopics:
    """Before anybody has said which topics there are."""

    version = -1
    topics: Mapping[str, TopicLike] = MappingProxyType({})
    group_configs: Mapping[str, Mapping[str, str]] = MappingProxyType({})

    def topic(self, name: str) -> TopicLike | None:
        return None

    def topic_by_id(self, topic_id: bytes) -> TopicLike | None:
        return None
