"""The load program in small, and what many rebalances leave behind."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from pathlib import Path

import uvloop

from broker_process import Broker
from cairnmq.client.admin import NewTopic
from cairnmq.client.blocking import Client
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.files.disk import RealDisk
from cairnmq.storage.recovery.witness import SPACE as WITNESS
from cairnmq.wire.messages import OffsetCommitRequest, OffsetCommitResponse
from load.groups import assigner, at_rest, large
from load.wire_member import WireMember, connect, subscription

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


def test_many_groups_and_a_large_one(tmp_path: Path) -> None:
    """Heartbeats are never refused, groups at rest stay so, and the large group has one owner for each partition."""
    broker = Broker(tmp_path, settings=SETTINGS).start()
    try:
        with Client.connect(broker.bootstrap) as client:
            client.create_topics([NewTopic("orders", 12), NewTopic("many", 1000)])
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            moved = runner.run(large(broker, 100, 1000))
            rest = runner.run(at_rest(broker, 40, 5, 3.0))
    finally:
        broker.stop()
    print(moved, rest)
    assert rest.heartbeats_per_second > 0 and rest.members == 200


async def _age(bootstrap: str, rounds: int) -> None:
    """One member that rebalances and commits again and again."""
    member = WireMember(await connect(bootstrap), "old", subscription(["orders"]), assigner("orders", 1))
    for number in range(rounds):
        await member.rebalance()
        commit = OffsetCommitRequest(
            group_id="old",
            member_id=member.member_id,
            generation_id_or_member_epoch=member.generation,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name="orders",
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=number, committed_metadata="m"
                        )
                    ],
                )
            ],
        )
        answer = await member.wire.ask(commit, OffsetCommitResponse)
        assert [row.error_code for topic in answer.topics for row in topic.partitions] == [0]
    await member.leave()
    member.wire.close()


def test_a_restart_costs_the_same_however_old_a_group_is(tmp_path: Path) -> None:
    """Facts are keyed: a checkpoint holds the latest of each, and what lies before it is not read again."""
    broker = Broker(tmp_path, settings=SETTINGS)
    seen = []
    for rounds in (10, 300):
        broker.start()
        if not seen:
            with Client.connect(broker.bootstrap) as client:
                client.create_topics([NewTopic("orders", 1)])
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_age(broker.bootstrap, rounds))
        broker.stop()
        image = load_checkpoint(RealDisk(str(broker.data)))
        broker.start()
        assert broker.http is not None
        with urllib.request.urlopen(f"{broker.http}/metrics") as answer:
            replay = re.findall(r"^cairn_replay_bytes\S* (\d+)", answer.read().decode(), re.MULTILINE)
        broker.stop()
        facts = sorted(fact for fact in image.keyed if fact[0] != WITNESS)
        seen.append((facts, sum(map(int, replay))))
    young, old = seen
    assert [space for space, _ in young[0]] == ["group", "offset"]
    assert old[0] == young[0], "one fact for the group, one for its offset, as at the beginning"
    assert old[1] <= young[1] + 4096, "bytes to replay do not grow with age"
