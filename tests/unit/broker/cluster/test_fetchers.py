"""What followers ask for, over which link, and when: replicas on real storage, links that the test answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

from cairnmq.broker.cluster.fetchers import Fetchers
from cairnmq.broker.internal.journal_messages import told_of
from cairnmq.broker.internal.link import Fetched, Link
from cairnmq.broker.internal.receive_memory import ReceiveMemory
from cairnmq.wire.internal import NotLeader, ReplicaFetch
from unit.broker.cluster.replica_rig import OTHER, THIRD, OneReplica, record
from unit.broker.rig import scenario, until


class PlayedLink:
    """Keeps what is asked until the test answers it."""

    def __init__(self) -> None:
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.asked: list[tuple[ReplicaFetch, asyncio.Future[Fetched]]] = []

    async def fetch(self, request: ReplicaFetch) -> Fetched:
        if self.asked and not self.asked[-1][1].done():
            self.asked[-1][1].set_result(Fetched([], memoryview(b""), ReceiveMemory(), None))
        answer: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()
        self.asked.append((request, answer))
        return await answer

    def journals(self, index: int = -1) -> list[int]:
        return [ask.journal for ask in self.asked[index][0].journals]

    def refuse(self, journal: int, index: int = -1) -> None:
        """This broker does not lead it; of the others there is nothing new."""
        told = [told_of(journal, NotLeader(0), 0)]
        self.asked[index][1].set_result(Fetched(told, memoryview(b""), ReceiveMemory(), None))

    async def hang_up(self) -> None:
        self.closed.set_result("the test is over")
        for _, answer in self.asked:
            answer.cancel()
        await asyncio.sleep(0)


def linked(fetchers: Fetchers, broker: int) -> PlayedLink:
    link = PlayedLink()
    fetchers.linked(broker, cast(Link, link))
    return link


def elect_third(one: OneReplica) -> None:
    if one.kept.record.epoch != 6:
        one.see(record(THIRD, 6, OTHER, THIRD))


@scenario
async def test_a_new_leader_that_appears_while_the_old_one_is_heard_is_asked(tmp_path: Path) -> None:
    """It may lead nothing else that this broker follows: no other journal's requests would wake the link."""
    fetchers = Fetchers(lambda journal: 0)
    old, new = linked(fetchers, 2), linked(fetchers, 3)
    one = OneReplica(tmp_path, fetchers=fetchers)
    one.see(record(OTHER, 5, OTHER, THIRD))
    await until(lambda: old.asked)
    one.ports.on_look = lambda: elect_third(one)
    old.refuse(4)
    await until(lambda: new.asked)
    assert new.journals() == [4] and new.asked[0][0].journals[0].epoch == 6
    for link in (old, new):
        await link.hang_up()
    await fetchers.close()
    await one.close()


@scenario
async def test_a_journal_that_waits_for_its_leader_keeps_no_other_waiting(tmp_path: Path) -> None:
    fetchers = Fetchers(lambda journal: 0)
    link = linked(fetchers, 2)
    waits, goes_on = OneReplica(tmp_path, fetchers=fetchers), OneReplica(tmp_path, 9, fetchers)
    for each in (waits, goes_on):
        each.see(record(OTHER, 5, OTHER, THIRD))
    await until(lambda: link.asked and link.journals() == [4, 9])
    waits.ports.holds_looks = True
    link.refuse(4)
    await until(lambda: waits.ports.looks)
    asked = len(link.asked)
    await until(lambda: len(link.asked) > asked or link.journals() == [9])
    assert link.journals() == [9]
    waits.ports.looks[0].set_result(None)
    await until(lambda: any(4 in link.journals(index) for index in range(asked, len(link.asked))))
    await link.hang_up()
    await fetchers.close()
    for each in (waits, goes_on):
        await each.close()
