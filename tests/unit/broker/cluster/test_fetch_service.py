"""What a leader sends to its followers, from real journals."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from cairnmq.broker.cluster import fetch_service
from cairnmq.broker.cluster.fetch_service import FetchService
from cairnmq.broker.internal.answer import Answer
from cairnmq.broker.internal.journal_messages import ask_of
from cairnmq.broker.internal.peer import Peer
from cairnmq.replication.messages import FetchPosition
from cairnmq.wire.internal import DATA, AcceptedTold, Hello, ReplicaFetch
from unit.broker.cluster.replica_rig import ME, OTHER, OneReplica, view
from unit.broker.rig import scenario


async def asked(service: FetchService, peer: Peer, end: int, echo_ms: int = 0) -> Answer:
    position = FetchPosition(OTHER, 5, end, 5 if end else 0, 0, echo_ms)
    return await service.serve(peer, ReplicaFetch(0, 1 << 20, [ask_of(4, position, 0, 0)]))


@scenario
async def test_a_reply_that_was_taken_in_part_is_gone_on_with_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the follower echoes is the time in the reply; the clock may have moved until its bytes were looked up."""
    one = OneReplica(tmp_path)
    await one.lead(5, OTHER)
    await one.broker.put(1)
    await one.broker.put(1)
    ticks = itertools.count(2000)
    one.ports.now_ms = lambda: next(ticks)  # type: ignore[method-assign]
    service = FetchService({4: one.replica}, one.broker.store.engine, lambda: view(one.kept, ME, OTHER))
    peer = Peer(Hello("c", OTHER.broker, OTHER.broker_epoch, 1, DATA, 1, 1, b""), 1)
    head = one.replica.leader.history.end // 3 if one.replica.leader is not None else 0
    monkeypatch.setattr(fetch_service, "JOURNAL_BYTES_MAX", head)
    first = await asked(service, peer, 0)
    reply = first.told[0].reply
    assert isinstance(reply, AcceptedTold)
    taken = 60  # the head of the epoch; what comes after it was cut off
    assert first.told[0].size > taken
    second = await asked(service, peer, taken, reply.sent_ms)
    assert second.told[0].size > 0
    await one.close()
