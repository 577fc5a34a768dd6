"""Watches read on from where they were, and are woken by later revisions only; on every store: conformance.py."""

from __future__ import annotations

from collections.abc import Sequence

from cairnmq.metadata.store import Change, Compacted
from cairnmq.metadata.store_watches import StoreWatches


class History:
    """Key n is of revision n."""

    def __init__(self) -> None:
        self.revision = 0
        self.oldest = 0
        self.watches = StoreWatches(self.read, 0)

    def read(self, after: int) -> tuple[Sequence[Change] | Compacted, int]:
        if after < self.oldest:
            return Compacted(self.oldest), self.revision
        found = range(after + 1, self.revision + 1)
        return [Change(f"k/{number}", b"", number) for number in found if number % 2], self.revision

    def become(self, revision: int) -> None:
        self.revision = revision
        self.watches.notice(revision)


def test_each_change_is_told_once() -> None:
    history = History()
    watch = history.watches.open(0, None)
    history.become(3)
    assert watch.poll() == [Change("k/1", b"", 1), Change("k/3", b"", 3)] and watch.poll() == []
    history.become(6)
    assert watch.poll() == [Change("k/5", b"", 5)]
    assert history.watches.open(4, None).poll() == [Change("k/5", b"", 5)]


def test_what_is_forgotten_is_said_until_somebody_begins_anew() -> None:
    history = History()
    history.become(6)
    watch = history.watches.open(2, None)
    history.oldest = 5
    assert watch.poll() == Compacted(5) == watch.poll()


def test_only_later_revisions_wake() -> None:
    history, woken = History(), list[str]()
    one = history.watches.open(0, lambda: woken.append("one"))
    history.watches.open(0, lambda: woken.append("two"))
    history.become(2)
    history.become(2)
    history.watches.notice(1)
    assert woken == ["one", "two"]
    one.close()
    one.close()
    history.become(3)
    assert woken == ["one", "two", "two"]


def test_who_is_woken_may_close_its_watch() -> None:
    history, woken = History(), list[int]()
    watches = [history.watches.open(0, lambda: (woken.append(1), watches[0].close())[0])]
    watches.append(history.watches.open(0, lambda: woken.append(2)))
    history.become(1)
    history.become(2)
    assert woken == [1, 2, 2]
