"""A replica follows one broker at a time, by the latest link to it."""

from __future__ import annotations

from msgspec.structs import replace

from cairnmq.broker.cluster.fetchers import Fetchers
from cairnmq.broker.internal.answer import Answer
from cairnmq.broker.internal.peer import Peer
from cairnmq.replication.messages import Room
from cairnmq.wire.internal import ReplicaFetch
from cairnmq.wire.internal_handshake import Identity
from unit.broker.cluster.replica_desk import JOURNAL, RECORD, A, B, C, Desk
from unit.broker.internal.link_rig import open_bench
from unit.broker.rig import scenario, until

OWN = Identity("cluster-a", A.broker, A.broker_epoch)


class Leader:
    """Parks every request."""

    def __init__(self) -> None:
        self.ends: list[tuple[int, int]] = []
        self.parked = 0

    async def serve(self, peer: Peer, request: ReplicaFetch) -> Answer:
        (ask,) = request.journals
        self.ends.append((ask.epoch, ask.split_backlog_bytes))
        self.parked += 1
        await peer.park(10)
        self.parked -= 1
        return Answer()


@scenario
async def test_it_asks_the_broker_that_leads_by_links_of_before_and_after() -> None:
    second, third = Leader(), Leader()
    fetchers = Fetchers(lambda journal: Room(backlog_bytes=700 + journal), lambda: 0)
    async with (
        Desk() as desk,
        open_bench(second.serve, Identity("cluster-a", 2, 12)) as to_second,
        open_bench(third.serve, Identity("cluster-a", 3, 13)) as to_third,
    ):
        desk.see(replace(RECORD, leader=B))
        await until(lambda: desk.copying.follower is not None)
        fetchers.linked(2, await to_second.link(1, OWN, to=2))
        fetchers.follow(desk.copying, 2)
        await until(lambda: second.parked)
        assert second.ends == [(20, 700 + JOURNAL)]
        desk.see(replace(RECORD, leader=C, epoch=21))
        await until(lambda: desk.copying.follower is not None and desk.copying.follower.record.epoch == 21)
        fetchers.follow(desk.copying, 3)
        fetchers.linked(3, await to_third.link(1, OWN, to=3))
        await until(lambda: third.parked)
        assert third.ends == [(21, 700 + JOURNAL)]
        to_second.links[0].close("broken")
        fetchers.linked(2, await to_second.link(2, OWN, to=2))
        fetchers.progressed(JOURNAL)
        to_third.links[0].close("broken")
        fetchers.linked(3, await to_third.link(2, OWN, to=3))
        await until(lambda: len(third.ends) == 2)
        assert len(second.ends) == 1, "it leads nothing that is followed here"
        fetchers.unfollow(desk.copying)
        to_third.links[1].close("broken")
        fetchers.linked(3, await to_third.link(3, OWN, to=3))
        for bench in (to_second, to_third):
            bench.links[-1].close("over")
        await fetchers.close()
        assert len(third.ends) == 2
