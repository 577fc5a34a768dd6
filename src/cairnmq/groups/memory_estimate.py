"""What members bring and a broker keeps: an estimate of the memory it takes, with what is around texts and bytes."""

from __future__ import annotations

from collections.abc import Iterable

from cairnmq.groups.messages import Protocols

ITEM_BYTES = 64  # an object and its place in a row
MEMBER_BYTES = 512  # a member, its time limits and its place in the group
DEADLINE_BYTES = 128  # also of one that is over: it stays in line until its time has come


def texts_weight(texts: Iterable[str | None]) -> int:
    return sum(ITEM_BYTES + len(text) for text in texts if text)


def protocols_weight(protocols: Protocols) -> int:
    return sum(2 * ITEM_BYTES + len(name) + len(metadata) for name, metadata in protocols)
