"""One question to a broker, asked in some versions; a script of them is sent the answers."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeAlias

from msgspec import Struct

from cairnmq.wire.apis import APIS
from cairnmq.wire.messages import Message


class Question(Struct, frozen=True):
    """Asked once in each of `versions`; `label` and version name the answer."""

    label: str
    key: int
    request: Message
    versions: tuple[int, ...]


# The Kafka that was asked (4.3.1) has no newer ones of these.
LAST_ASKED = {18: 4, 28: 5, 42: 2}

Script: TypeAlias = Generator[Question, Message | None, None]


def question(label: str, key: int, request: Message, versions: Sequence[int] | None = None) -> Question:
    every = range(APIS[key].min, LAST_ASKED.get(key, APIS[key].max) + 1)
    return Question(f"{APIS[key].name} {label}", key, request, tuple(versions if versions is not None else every))


def newest(label: str, key: int, request: Message) -> Question:
    return question(label, key, request, [LAST_ASKED.get(key, APIS[key].max)])
