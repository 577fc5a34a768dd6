"""A change is told to have been made, or not, only when that is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from cairnmq.broker.cluster.cluster_store import ClusterStore, Done, Outcome, Refused
from cairnmq.broker.cluster.metadata_changes import MetadataChanges
from cairnmq.broker.cluster.metadata_loop import MetadataLoop
from cairnmq.errors import Unreachable
from cairnmq.metadata.store import InDoubt
from cairnmq.replication.records import Proposal, PublishedEnd
from unit.broker.cluster.replica_desk import RECORD
from unit.broker.rig import scenario

DOUBT = InDoubt("nobody answered", 1)
PROPOSAL = Proposal(RECORD, 7)


class Doubtful:
    """A store that answers what a test says, and the loop over it. An outcome may be raised."""

    def __init__(self, *outcomes: Outcome | Unreachable) -> None:
        self.outcomes = list(outcomes)
        self.calls: list[object] = []
        self.refreshed = 0

    async def call(self, work: Callable[[], Any]) -> Any:
        return work()

    async def refresh(self) -> None:
        self.refreshed += 1

    def _next(self, *call: object) -> Outcome:
        self.calls.append(call)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Unreachable):
            raise outcome
        return outcome

    def propose(self, proposals: list[Proposal], as_controller: bool) -> Outcome:
        return self._next("propose", proposals, as_controller)

    def resolve(self, doubt: InDoubt) -> Outcome:
        return self._next("resolve", doubt)

    def publish_end(self, journal: int, end: PublishedEnd) -> Outcome:
        return self._next("publish", journal, end)

    def changes(self) -> MetadataChanges:
        return MetadataChanges(cast(MetadataLoop, self), cast(ClusterStore, self), self.refresh)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cairnmq.broker.cluster.metadata_changes.DOUBT_SECONDS", 0.001)


@scenario
async def test_what_is_certain_is_said_at_once() -> None:
    assert await Doubtful(Done(8)).changes().propose(PROPOSAL)
    assert not await Doubtful(Refused("changed")).changes().propose(PROPOSAL)


@pytest.mark.parametrize("end", [Done(8), Refused("it was not made")])
@scenario
async def test_in_doubt_it_is_asked_until_somebody_knows(end: Outcome) -> None:
    store = Doubtful(DOUBT, Unreachable("away"), DOUBT, Unreachable("away"), end)
    assert await store.changes().propose(PROPOSAL) is isinstance(end, Done)
    assert store.calls == [("propose", [PROPOSAL], False)] + 4 * [("resolve", DOUBT)], "it is never made again"


@scenario
async def test_what_a_controller_decides_is_checked_as_such() -> None:
    store = Doubtful(Done(8))
    assert await store.changes().decide([PROPOSAL])
    assert store.calls == [("propose", [PROPOSAL], True)]


@scenario
async def test_ends_too_may_be_in_doubt() -> None:
    store, end = Doubtful(DOUBT, Done(9)), PublishedEnd(1, 2, 3)
    assert await store.changes().publish_end(4, end)
    assert store.calls == [("publish", 4, end), ("resolve", DOUBT)]


@scenario
async def test_to_read_again_is_what_the_broker_says() -> None:
    store = Doubtful()
    await store.changes().reread()
    assert store.refreshed == 1
