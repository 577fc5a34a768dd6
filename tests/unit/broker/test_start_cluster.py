"""Starts in a cluster that must be refused before anything changes, and what a clean stop is worth."""

from __future__ import annotations

import logging
import shutil
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from cairnmq.broker.options import Address
from cairnmq.broker.start_errors import CannotServe
from cairnmq.errors import Corrupt, Fault, Outdated
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.storage.recovery.clean_stop import CLEAN_STOP
from unit.broker.cluster.rig import ClusterRig, OneBroker, cluster
from unit.broker.rig import batch, open_rig, scenario, until


async def refused(one: OneBroker, match: str, kind: type[Exception] = CannotServe) -> None:
    with pytest.raises(kind, match=match):
        await one.start()
    await one.stop()


@scenario
async def test_metadata_of_a_broker_that_was_alone_move_into_an_empty_store_only(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1):
        second = OneBroker(2, tmp_path)
        second.data.mkdir()
        own = second.data / "meta.db"
        with closing(SqliteStore(str(own))) as store:
            catalog = Catalog(store, node_id=2)
            catalog.load()
            catalog.name_cluster()
            catalog.close()
        await refused(second, "only an empty store takes them over", Fault)
        assert own.exists(), "and they are as they were"
        own.write_bytes(b"no metadata at all")
        await refused(second, "not a database", Corrupt)


@scenario
async def test_a_first_start_in_a_cluster_that_was_killed_goes_on_under_the_same_id(tmp_path: Path) -> None:
    """The metadata had moved, and nothing else had been done."""
    async with open_rig(tmp_path, journals=(0, 1)) as alone:
        await alone.create("t")
        assert (await alone.produce("t", batch(b"before"))).error_code == 0
    one = OneBroker(5, tmp_path)
    (tmp_path / "data").rename(one.data)
    async with AsyncExitStack() as stack:
        await one.open_metadata(stack, Address("127.0.0.1", 5))
    assert (one.data / "meta.db.moved").exists()
    for other in (1, 7):
        wrong = OneBroker(other, tmp_path)
        wrong.data = one.data
        await refused(wrong, "is that of broker 5: use --node-id 5")
    await one.start()
    await until(lambda: len(one.leadership.led) == 2)
    topic = one.catalog.image.topic("t")
    await until(lambda: one.store.queues[topic.queue_id(0)].high_watermark == 1)
    await one.stop()


async def one_life(directory: Path, *, acknowledged: bytes = b"") -> int:
    """A broker that is alone in its cluster, and stops cleanly. Its epoch."""
    async with cluster(directory, 1) as rig:
        if acknowledged:
            journal = await rig.journal(factor=1)
            await rig.produce(await rig.leader(journal), acknowledged)
        epoch = rig[1].node.identity().broker_epoch
        await rig.stop(1)
        return epoch


@scenario
async def test_a_file_of_another_cluster_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        await one_life(tmp_path / name)
    one = OneBroker(1, tmp_path / "a")
    one.metadata = tmp_path / "b" / "cluster.db"
    before = one.metadata.read_bytes()
    await refused(one, "belongs to the cluster")
    assert one.metadata.read_bytes() == before


@scenario
async def test_a_file_that_does_not_exist_is_not_made_for_a_broker_of_a_cluster(tmp_path: Path) -> None:
    await one_life(tmp_path)
    one = OneBroker(1, tmp_path)
    one.metadata = tmp_path / "misspelt.db"
    await refused(one, "does not exist")
    assert not one.metadata.exists()


@scenario
async def test_a_file_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    one = OneBroker(1, tmp_path)
    one.metadata = tmp_path / "missing" / "cluster.db"
    await refused(one, "cluster.db")
    one = OneBroker(1, tmp_path)
    one.metadata.write_bytes(b"no database" * 1000)
    with pytest.raises(Exception, match="cluster.db"):
        await one.start()
    await one.stop()


@scenario
async def test_metadata_that_are_older_than_the_records_are_refused(tmp_path: Path) -> None:
    await one_life(tmp_path, acknowledged=b"a")
    one = OneBroker(1, tmp_path)
    older = tmp_path / "older"
    shutil.copy(one.metadata, older)
    for _ in range(3):
        await one_life(tmp_path)
    journals = sorted((tmp_path / "broker1" / "journal").rglob("*"))
    contents = [path.read_bytes() for path in journals if path.is_file() and "owner" not in path.name]
    shutil.copy(older, one.metadata)
    await refused(one, "older than the records of this broker(?s:.*)Stop all brokers and restore", Outdated)
    after = [path.read_bytes() for path in journals if path.is_file() and "owner" not in path.name]
    assert after == contents, "nothing was changed"


@scenario
async def test_each_life_has_a_higher_epoch_and_records_stay(tmp_path: Path) -> None:
    epochs = [await one_life(tmp_path, acknowledged=b"a")] + [await one_life(tmp_path) for _ in range(2)]
    assert epochs == sorted(set(epochs))
    async with cluster(tmp_path, 1) as rig:
        assert rig[1].was_clean and rig.queue(rig[1]).high_watermark == 1


@scenario
async def test_a_clean_stop_counts_only_for_the_life_that_wrote_it(tmp_path: Path) -> None:
    """A marker that outlived another life says nothing of what that one wrote."""
    await one_life(tmp_path, acknowledged=b"a")
    data = tmp_path / "broker1"
    kept = (data / CLEAN_STOP).read_bytes()
    async with cluster(tmp_path, 1) as rig:
        assert rig[1].node._loop.cluster.view.brokers[1].clean, "the stop before was clean"
        assert not (data / CLEAN_STOP).exists(), "gone before anything is appended"
        await rig.drop(1)
    (data / CLEAN_STOP).write_bytes(kept)
    async with cluster(tmp_path, 1) as rig:
        assert not rig[1].node._loop.cluster.view.brokers[1].clean


@scenario
async def test_a_killed_broker_is_not_clean(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as rig:
        await rig.drop(1)
    async with cluster(tmp_path, 1) as rig:
        assert not rig[1].was_clean and not rig[1].node._loop.cluster.view.brokers[1].clean


@scenario
async def test_the_address_for_brokers_may_be_another_one_than_it_listens_at(tmp_path: Path) -> None:
    one = OneBroker(1, tmp_path, cairn_internal_advertise="10.1.2.3:7000")
    async with AsyncExitStack() as stack:
        shared = await one.open_metadata(stack, Address("127.0.0.1", 5))
    assert (shared.entry.internal_host, shared.entry.internal_port) == ("10.1.2.3", 7000)
    assert (shared.entry.host, shared.entry.port) == ("127.0.0.1", 9001)


@scenario
async def test_a_broker_joins_with_the_journals_that_the_metadata_give_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as rig:
        journal = await rig.journal()
        alone = await rig.create("alone", factor=1)
        (only,) = {number for _, _, number in alone.places()}
        owner = await rig.leader(only)
        other = next(one for one in rig.brokers.values() if one is not owner)
        await rig.stop(other.number)
        again = await rig.start(other.number)
        assert journal in again.store.engine.paths and only not in again.store.engine.paths
        await until(lambda: len(again.record(journal).isr) == 3)


@scenario
async def test_a_disk_that_was_not_mounted_is_back(tmp_path: Path) -> None:
    """Meanwhile the broker lacks what was there, and leads none of it. With the disk it lacks nothing."""
    data, aside = tmp_path / "broker1", tmp_path / "aside"
    async with cluster(tmp_path, 1) as rig:
        journal = await rig.journal(factor=1)
        await rig.produce(await rig.leader(journal), b"a")
        await rig.stop(1)
        data.rename(aside)
        one = await rig.start(1)
        assert journal in one.node._loop.cluster.view.brokers[1].damaged
        await until(lambda: one.record(journal).leader is None)

        def ends() -> list[tuple[int, int, int]]:
            (row,) = [row for row in one.node.report().journals if row.journal == journal]
            return [(told.node_id, told.last_epoch, told.end) for told in row.ends]

        await until(lambda: ends() == [(1, 0, 0)])
        await rig.stop(1)
        shutil.rmtree(data)
        aside.rename(data)
        one = await rig.start(1)
        assert not one.node._loop.cluster.view.brokers[1].damaged
        assert await rig.leader(journal) is one
        await until(lambda: rig.queue(one).high_watermark == 1)


def spoil(data: Path, value: bytes) -> tuple[Path, bytes]:
    """One byte of a record in the journals; the file and what it was."""
    for path in (data / "journal").rglob("*.jnl"):
        before = path.read_bytes()
        if (at := before.find(value)) >= 0:
            path.write_bytes(before[:at] + b"?" + before[at + 1 :])
            return path, before
    raise AssertionError(f"{value!r} is nowhere")


@scenario
async def test_a_damaged_file_that_is_restored_in_place_is_whole_again(tmp_path: Path) -> None:
    """Nobody else has it, so nothing is cut, and nobody leads until it is there again."""
    async with cluster(tmp_path, 1) as rig:
        journal = await rig.journal(factor=1)
        await rig.produce(await rig.leader(journal), b"first")
        await rig.produce(rig[1], b"the record")
        await rig.stop(1)
        path, before = spoil(tmp_path / "broker1", b"the record")
        for _ in range(2):
            one = await rig.start(1)
            record = one.node._loop.cluster.view.brokers[1]
            assert record.damaged == {journal} and record.had[journal] > 0
            await until(lambda one=one: one.record(journal).leader is None)  # type: ignore[misc]
            await rig.stop(1)
        path.write_bytes(before)
        one = await rig.start(1)
        record = one.node._loop.cluster.view.brokers[1]
        assert (record.damaged, record.had) == (frozenset(), {})
        assert await rig.leader(journal) is one
        await until(lambda: rig.queue(one).high_watermark == 2)


async def all_damaged(rig: ClusterRig, directory: Path) -> tuple[int, tuple[Path, bytes]]:
    """All replicas have lost the same record, and are up again, in this order. The journal, and what the file of the
    third one was."""
    journal = await rig.journal()
    leader = await rig.leader(journal)
    await rig.produce(leader, b"first")
    await rig.produce(leader, b"the record")
    end = leader.end(journal)
    await until(lambda: leader.replica(journal).leader.durable_end == end)  # type: ignore[union-attr]
    for number in (leader.number, *({1, 2, 3} - {leader.number})):
        await rig.drop(number)
    spoilt = {number: spoil(directory / f"broker{number}", b"the record") for number in (1, 2, 3)}
    for number in (1, 2, 3):
        one = await rig.start(number)
        record = one.node._loop.cluster.view.brokers[number]
        assert record.damaged == {journal} and (journal in record.had) is (number == 3)
    return journal, spoilt[3]


@scenario
async def test_of_those_that_are_all_damaged_the_last_one_is_not_cut(tmp_path: Path) -> None:
    """It sees that the others lack bytes too, and keeps what it has until it is restored."""
    async with cluster(tmp_path) as rig:
        _, (path, before) = await all_damaged(rig, tmp_path)
        assert not (tmp_path / "broker3" / "journal" / "lost").exists()
        await rig.stop(3)
        path.write_bytes(before)
        one = await rig.start(3)
        assert not one.node._loop.cluster.view.brokers[3].damaged


@scenario
async def test_one_that_was_not_cut_comes_back_when_another_one_leads(tmp_path: Path) -> None:
    async with cluster(tmp_path) as rig:
        journal, _ = await all_damaged(rig, tmp_path)
        await until(lambda: any(row.journal == journal and len(row.ends) >= 2 for row in rig[1].node.report().journals))
        assert not rig[3].restarts
        assert await rig[3].node.elections.unclean(journal) is None
        await until(lambda: rig[3].restarts > 0)
        await rig.stop(3)
        again = await rig.start(3)
        await until(lambda: len(again.record(journal).isr) == 3)
        assert not again.restarts and rig.queue(again).end == 1


@scenario
async def test_after_an_unclean_election_nothing_is_missed_any_more(tmp_path: Path) -> None:
    """What was lost is given up: the next start does not look for it."""
    async with cluster(tmp_path, 1) as rig:
        journal = await rig.journal(factor=1)
        await rig.produce(await rig.leader(journal), b"first")
        await rig.produce(rig[1], b"the record")
        await rig.stop(1)
        spoil(tmp_path / "broker1", b"the record")
        one = await rig.start(1)
        await until(lambda: one.record(journal).leader is None)
        assert await one.node.elections.unclean(journal) is None
        await until(lambda: one.restarts)
        for _ in range(2):
            await rig.stop(1)
            again = await rig.start(1)
            record = again.node._loop.cluster.view.brokers[1]
            assert (record.damaged, record.had, again.restarts) == (frozenset(), {}, 0)
            assert await rig.leader(journal) is again
            await until(lambda again=again: rig.queue(again).high_watermark == 1)  # type: ignore[misc]
        await rig.produce(again, b"second")
        assert list((tmp_path / "broker1" / "journal" / "lost").rglob("*.jnl*")), "what was cut is kept"


@scenario
async def test_a_start_says_which_cluster_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A misspelt path would begin a second one."""
    caplog.set_level(logging.INFO, logger="cairnmq.broker")
    async with cluster(tmp_path, 1) as rig:
        name = rig[1].broker.ctx.node.cluster_id
        assert f"new cluster {name} in sqlite:{tmp_path}/cluster.db, with broker 1 as its first" in caplog.text
        await rig.start(2)
        assert f"joined cluster {name} of sqlite:{tmp_path}/cluster.db as broker 2" in caplog.text
