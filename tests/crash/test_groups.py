"""A broker killed while groups rebalance and commit: what a member was told is what it finds."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import uvloop

from broker_process import Broker, fixed_port
from cairnmq.client.admin import NewTopic
from cairnmq.client.blocking import Client
from cairnmq.errors import ErrorCode
from cairnmq.types import TopicPartition
from cairnmq.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from load.wire_member import Wire, WireMember, connect, subscription

GROUPS = 4
KILLS = 4


class Told:
    """What one group's only member was told last."""

    def __init__(self, number: int) -> None:
        self.group = f"group-{number}"
        self.member_id = ""
        self.generation = 0
        self.assignment = b""
        self.offset = -1
        self.rounds = 0

    async def live(self, bootstrap: str) -> None:
        """Rebalances and commits until the broker is gone."""
        wire = await connect(bootstrap)
        try:
            await self.check(wire)
            while True:
                member = WireMember(wire, self.group, subscription(["orders"]), self.assign)
                member.member_id = self.member_id
                await member.rebalance()
                assert member.generation > self.generation, "a generation that was told comes again"
                self.member_id, self.generation, self.assignment = (
                    member.member_id, member.generation, member.assignment,
                )  # fmt: skip
                await self.commit(wire)
                self.rounds += 1
        finally:
            wire.close()

    def assign(self, members: list[str]) -> dict[str, bytes]:
        """Never the same twice."""
        return {member: random.randbytes(16) for member in members}

    async def commit(self, wire: Wire) -> None:
        row = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=self.offset + 1)
        request = OffsetCommitRequest(
            group_id=self.group,
            member_id=self.member_id,
            generation_id_or_member_epoch=self.generation,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=[row])],
        )
        answer = await wire.ask(request, OffsetCommitResponse)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        self.offset += 1

    async def check(self, wire: Wire) -> None:
        """After a start: the assignment that was told is there, unless one that nobody heard of came after it."""
        if not self.member_id:
            return
        request = SyncGroupRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id, assignments=[]
        )
        answer = await wire.ask(request, SyncGroupResponse)
        if answer.error_code == ErrorCode.NONE:
            assert bytes(answer.assignment) == self.assignment
        else:
            assert answer.error_code == ErrorCode.ILLEGAL_GENERATION, ErrorCode(answer.error_code)


async def _until_killed(broker: Broker, told: list[Told], seconds: float) -> None:
    tasks = [asyncio.create_task(one.live(broker.bootstrap)) for one in told]
    await asyncio.sleep(seconds)
    early = [task for task in tasks if task.done()]
    broker.kill_tree()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in early:
        task.result()


def test_what_members_were_told_outlives_kills(tmp_path: Path) -> None:
    broker = Broker(tmp_path, settings={"group.initial.rebalance.delay.ms": "0"}, port=fixed_port(), http=False)
    told = [Told(number) for number in range(GROUPS)]
    broker.start()
    with Client.connect(broker.bootstrap) as client:
        client.create_topics([NewTopic("orders", 1)])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for number in range(KILLS):
            runner.run(_until_killed(broker, told, 0.3 + random.random() / 2))
            broker.start()
            with Client.connect(broker.bootstrap) as client:
                for one in told:
                    kept = client.offset_fetch(one.group).get(TopicPartition("orders", 0), -1)
                    assert one.offset <= kept <= one.offset + 1, f"kill {number}: {one.group} lost a commit"
                    one.offset = kept
    broker.stop()
    assert all(one.rounds > KILLS for one in told), "there was something to lose"
