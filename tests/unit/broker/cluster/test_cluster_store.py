"""A broker's part of the metadata store: sessions, proposals, the controller; also of two processes with one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from msgspec.structs import replace

from cairnmq.broker.cluster.cluster_store import Done, Refused
from cairnmq.errors import Fault
from cairnmq.metadata.image import Topic
from cairnmq.metadata.store import Away, Conflict, InDoubt, MetadataStore, NextEpoch, Op, Session, Watch
from cairnmq.replication.controller import ControllerMemory, decide
from cairnmq.replication.records import Member, Proposal, PublishedEnd
from cairnmq.testing.memory_store import MemoryStore
from cairnmq.types import Slots
from unit.broker.cluster.brokers import CONFIG, SESSION_MS, Machines, OneBroker, Time, journal, registered
from unit.metadata.second_process import SecondProcess, SecondStore
from unit.metadata.test_sqlite import SharedHarness


@pytest.fixture
def machines() -> Machines:
    return Machines()


# ------------------------------------------------------------------------------------------------------ sessions


def test_a_session_that_ended(machines: Machines) -> None:
    """The process goes on: its next life is clean, and what the controller had given to others stays with them."""
    one, two = machines.broker(1), machines.broker(2)
    machines.pass_ms(SESSION_MS * 2, two)
    two.cluster.poll()
    assert two.cluster.cluster.live_members() == [Member(2, 2)]
    assert one.cluster.renew() is False
    assert one.register(stopped_as=1) == Member(1, 3)
    assert registered(one).record.clean and one.cluster.renew() is True
    assert one.cluster.confirmed_ms == machines.time.now_ms and one.cluster.pace_ms == SESSION_MS // 3


def test_renewals_change_no_revision_and_wake_nobody(machines: Machines) -> None:
    one, two = machines.broker(1), machines.broker(2)
    assert one.cluster.look() and one.cluster.poll() is not None
    revision = machines.state.revision
    machines.pass_ms(SESSION_MS * 2, one, two)
    assert machines.state.revision == revision and not one.cluster.look() and one.cluster.poll() is None


def test_away_is_not_the_end_of_a_session(machines: Machines) -> None:
    one = machines.broker(1)
    machines.stores[1].away = True
    assert isinstance(one.cluster.renew(), Away)
    machines.stores[1].away = False
    assert one.cluster.renew() is True


def test_a_broker_that_goes(machines: Machines) -> None:
    one, two = machines.broker(1), machines.broker(2)
    assert isinstance(two.cluster.stopping(), Done) and registered(one, 2).record.stopping
    two.cluster.close()
    one.cluster.poll()
    assert one.cluster.cluster.live_members() == [Member(1, 1)] and registered(one, 2).record.stopping


def test_found_dead(machines: Machines) -> None:
    """Refused connections: the keys go at once. A process that lives after all notices, and begins another life."""
    one, two = machines.broker(1), machines.broker(2)
    assert two.cluster.elect_controller()
    one.cluster.poll()
    seen = one.cluster.cluster
    assert isinstance(one.cluster.remove_dead(2, seen), Done)
    assert one.cluster.cluster.controller is None and one.cluster.cluster.live_members() == [Member(1, 1)]
    assert two.cluster.renew() is False
    two.register(stopped_as=2)
    assert isinstance(one.cluster.remove_dead(2, seen), Refused), "this life was not seen"
    one.cluster.poll()
    assert one.cluster.cluster.live_members() == [Member(1, 1), Member(2, 3)]


# ----------------------------------------------------------------------------------------------------- proposals


def test_a_proposal(machines: Machines) -> None:
    one, two = machines.broker(1), machines.broker(2)
    proposal = journal(one, Member(1, 1), Member(2, 2))
    answer = one.cluster.propose([proposal], as_controller=False)
    assert isinstance(answer, Done)
    kept = one.cluster.cluster.view.journals[7]
    assert (kept.record, kept.revision) == (proposal.record, answer.revision), "in the image at once"
    assert two.record(7) == proposal.record and machines.state.epoch == proposal.new_epoch
    assert isinstance(one.cluster.propose([proposal], as_controller=False), Refused), "at the former revision"


def test_a_proposal_for_a_life_that_is_over(machines: Machines) -> None:
    one, two = machines.broker(1), machines.broker(2)
    proposal = replace(journal(one, Member(1, 1), Member(2, 2)), registered=(Member(2, 2),), new_epoch=0)
    two.register(stopped_as=2)
    assert isinstance(one.cluster.propose([proposal], as_controller=False), Refused)
    assert one.record(7).leader is None


def test_who_only_tells_something_refuses_nothing(machines: Machines) -> None:
    """A published end changes the broker's key, not its life."""
    one, two = machines.broker(1), machines.broker(2)
    proposal = replace(journal(one, Member(1, 1), Member(2, 2)), registered=(Member(1, 1), Member(2, 2)))
    assert isinstance(two.cluster.publish_end(7, PublishedEnd(2, 1, 50)), Done)
    assert isinstance(one.cluster.propose([proposal], as_controller=False), Done)
    assert registered(one, 2).record.ends == {7: PublishedEnd(2, 1, 50)}


def test_an_epoch_that_is_given_already(machines: Machines) -> None:
    """No key and no revision says so: the epoch is read with each look."""
    one, two = machines.broker(1), machines.broker(2)
    proposal = journal(one, Member(1, 1), Member(2, 2))
    two.store.next_epoch()
    assert isinstance(one.cluster.propose([proposal], as_controller=False), Refused)
    later = one.cluster.cluster.view.last_epoch + 1
    assert later == proposal.new_epoch + 1
    again = replace(proposal, record=replace(proposal.record, epoch=later), new_epoch=later)
    assert isinstance(one.cluster.propose([again], as_controller=False), Done)


@pytest.mark.parametrize("made", [True, False])
def test_a_proposal_in_doubt(machines: Machines, made: bool) -> None:
    one = machines.broker(1)
    proposal, store = journal(one, Member(1, 1)), machines.stores[1]
    store.loses = made
    answer = one.cluster.propose([proposal], as_controller=False)
    assert isinstance(answer, InDoubt)
    store.away = True
    assert isinstance(one.cluster.resolve(answer), InDoubt)
    store.away, store.loses = False, None
    assert isinstance(one.cluster.resolve(answer), Done if made else Refused)
    assert (one.cluster.cluster.view.journals[7].record == proposal.record) is made


def test_a_proposal_while_the_store_is_away(machines: Machines) -> None:
    one = machines.broker(1)
    proposal, machines.stores[1].away = journal(one, Member(1, 1)), True
    assert isinstance(one.cluster.propose([proposal], as_controller=False), Refused)


# ---------------------------------------------------------------------------------------------------- controller


def test_one_controller(machines: Machines) -> None:
    one, two = machines.broker(1), machines.broker(2)
    assert one.cluster.elect_controller() and not two.cluster.elect_controller()
    assert two.cluster.cluster.controller == Member(1, 1)
    assert not one.cluster.elect_controller(), "it is one already"


def test_controller_by_a_response_that_was_lost(machines: Machines) -> None:
    one = machines.broker(1)
    machines.stores[1].loses = True
    assert one.cluster.elect_controller()


def test_a_restarted_controller_is_it_no_more(machines: Machines) -> None:
    one, two = machines.broker(1), machines.broker(2)
    assert one.cluster.elect_controller()
    one.register(stopped_as=1)
    two.cluster.poll()
    assert two.cluster.cluster.controller is None and two.cluster.elect_controller()


def test_a_broker_found_dead_is_not_elected(machines: Machines) -> None:
    one, two = machines.broker(1), machines.broker(2)
    one.cluster.poll(), two.cluster.poll()
    one.cluster.remove_dead(2, one.cluster.cluster)
    assert not two.cluster.elect_controller(), "its session goes on, and its key is gone"
    assert one.cluster.elect_controller()


def test_a_zombie_controller_changes_nothing(machines: Machines) -> None:
    """It slept while its session ended and another was elected; what it sees is old, and says that it is the one."""
    one, two = machines.broker(1), machines.broker(2)
    proposal = journal(one, Member(1, 1), Member(2, 2))
    assert one.cluster.elect_controller()
    machines.pass_ms(SESSION_MS * 2, two)
    assert two.cluster.elect_controller()
    assert one.cluster.cluster.controller == Member(1, 1), "nobody has told it"
    proposal = replace(proposal, new_epoch=two.store.epoch + 1)
    assert isinstance(one.cluster.propose([proposal], as_controller=True), Refused)
    assert two.record(7).leader is None
    assert isinstance(one.cluster.propose([proposal], as_controller=True), Refused), "now it knows"


def test_all_elections_of_a_look_are_one_transaction(machines: Machines) -> None:
    """Of the real controller. A session ends; all that it led has another leader, under one epoch."""
    one, two, three = (machines.broker(number) for number in (1, 2, 3))
    topic = one.made("a", partitions=6, factor=3)
    led = [j for _, _, j in topic.places() if one.record(j).leader == Member(2, 2)]
    assert len(led) == 2 and three.cluster.elect_controller()
    machines.pass_ms(SESSION_MS * 2, one, three)
    three.cluster.poll()
    proposals = decide(three.cluster.cluster.view, ControllerMemory(), machines.time.now_ms)
    before = machines.state.revision
    assert isinstance(three.cluster.propose(proposals, as_controller=True), Done)
    assert machines.state.revision == before + 1
    records = [one.record(number) for number in led]
    assert {record.leader for record in records} <= {Member(1, 1), Member(3, 3)}
    assert {record.epoch for record in records} == {machines.state.epoch}
    assert all(len(record.isr) == 3 for record in records)


# ------------------------------------------------------------------------------------- two processes, one SQLite file


class Unwoken:
    """A store in another process, which wakes nobody here: its catalog polls."""

    def __init__(self, store: SecondStore) -> None:
        self._store = store

    def watch(self, from_revision: int, wake: Callable[[], None] | None = None) -> Watch:
        return self._store.watch(from_revision)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.fixture(scope="module")
def second() -> Iterator[SecondProcess]:
    with closing(SecondProcess()) as process:
        yield process


class Pair:
    """Broker 1 here and broker 2 in the other process."""

    def __init__(self, harness: SharedHarness) -> None:
        self.harness = harness
        self.store = harness.open()
        self.other = harness.beside(self.store)
        self.one = OneBroker(1, self.store, Time())
        self.two = OneBroker(2, cast(MetadataStore, Unwoken(self.other)), Time())

    def pass_ms(self, ms: int, *renewing: OneBroker) -> None:
        """A third broker lives on, so the store is written meanwhile."""
        self.harness.pass_ms(ms, *(cast(Session, one.cluster) for one in renewing))


@pytest.fixture
def pair(tmp_path: Path, second: SecondProcess) -> Iterator[Pair]:
    with closing(SharedHarness(tmp_path, second)) as harness:
        pair = Pair(harness)
        pair.one.register(), pair.two.register()
        yield pair


def test_two_processes_see_one_cluster(pair: Pair) -> None:
    topic = pair.two.made("a", partitions=4, factor=2)
    assert pair.one.cluster.look() and pair.one.cluster.poll() is not None
    assert not pair.one.cluster.look()
    assert pair.one.catalog.image.topic("a") == topic and pair.one.cluster.cluster == pair.two.cluster.cluster
    made = pair.one.made("b", partitions=4, factor=2)
    assert sorted(made.partitions[0].cycle) == sorted(topic.partitions[0].cycle), "the journals are there"
    assert made.partitions[0].first == topic.partitions[0].end


def test_topics_made_at_the_same_time_make_their_journals_once(pair: Pair) -> None:
    """Both brokers decide on the same image; the slower one decides again."""
    transact = pair.other.transact

    def meanwhile(ops: Sequence[Op | NextEpoch]) -> int | Conflict | Away | InDoubt:
        pair.other.transact = transact  # type: ignore[method-assign]
        pair.one.made("a", factor=2)
        return transact(ops)

    pair.other.transact = meanwhile  # type: ignore[method-assign]
    pair.two.made("b", factor=2)
    pair.one.cluster.poll()
    assert len(pair.one.cluster.cluster.view.journals) == 4 and pair.one.catalog.image.topic("b") is not None


def test_a_session_in_another_process_ends(pair: Pair) -> None:
    assert pair.two.cluster.elect_controller()
    pair.pass_ms(SESSION_MS * 2, pair.one)
    pair.one.cluster.poll()
    assert pair.one.cluster.cluster.live_members() == [Member(1, 1)] and pair.one.cluster.elect_controller()
    proposal = journal(pair.one, Member(1, 1))
    assert isinstance(pair.two.cluster.propose([proposal], as_controller=True), Refused), "a zombie"
    assert pair.two.cluster.renew() is False
    assert pair.two.register(stopped_as=2).broker_epoch > 2 and registered(pair.one, 2).record.clean


def test_a_broker_stopped_inside_a_transaction_makes_the_store_away(pair: Pair) -> None:
    """No more: nobody's session ends by it, and what waits for the store is refused or goes on."""
    proposal = journal(pair.one, Member(1, 1))
    pair.other.stop_inside()
    try:
        assert isinstance(pair.one.cluster.renew(), Away)
        assert isinstance(pair.one.cluster.propose([proposal], as_controller=False), Refused)
        assert isinstance(pair.one.cluster.publish_end(7, PublishedEnd(0, 0, 0)), Refused)
        assert pair.one.cluster.poll() is None, "reading goes on"
        pair.harness.stand_still(SESSION_MS * 3)
    finally:
        pair.other.process.go_on()
        pair.other.finish()
    assert pair.one.cluster.renew() is True and pair.two.cluster.renew() is True
    pair.one.cluster.poll()
    assert pair.one.cluster.cluster.live_members() == [Member(1, 1), Member(2, 2)]
    assert isinstance(pair.one.cluster.propose([proposal], as_controller=False), Done)


# ------------------------------------------------------------------------------------------------- all at once


class Crowd:
    """Three brokers that do anything in any order, over stores that go away and lose responses."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.machines = Machines()
        self.brokers = {number: self.machines.broker(number) for number in (1, 2, 3)}
        self.lives = {number: one.cluster.me for number, one in self.brokers.items()}
        self.epochs: dict[int, int] = {}
        self.done = 0

    def step(self) -> None:
        one = self.brokers[self.random.randint(1, 3)]
        store = self.machines.stores[one.number]
        store.away = self.random.random() < 0.05
        store.loses = self.random.choice([True, False]) if self.random.random() < 0.1 else None
        steps = [self.create, self.grow, self.delete, self.slots, self.control, self.shrink, self.renew, self.restart]
        with suppress(Fault):
            self.done += self.random.choice(steps)(one) is True
        store.away, store.loses = False, None
        self.judge()

    def create(self, one: OneBroker) -> bool:
        name, factor = f"t{self.random.randint(1, 9)}", self.random.randint(1, 3)
        return isinstance(one.create(name, self.random.randint(1, 9), factor), Topic)

    def grow(self, one: OneBroker) -> bool:
        name = f"t{self.random.randint(1, 9)}"
        return isinstance(one.catalog.add_partitions(name, self.random.randint(1, 20), broker=CONFIG), Topic)

    def delete(self, one: OneBroker) -> bool:
        return isinstance(one.catalog.delete_topic(f"t{self.random.randint(1, 9)}", broker=CONFIG), Topic)

    def slots(self, one: OneBroker) -> bool:
        return isinstance(one.catalog.make_slots_replicated(CONFIG), Slots)

    def control(self, one: OneBroker) -> bool:
        one.cluster.elect_controller()
        proposals = decide(one.cluster.cluster.view, ControllerMemory(), self.machines.time.now_ms)
        return bool(proposals) and isinstance(one.cluster.propose(proposals, as_controller=True), Done)

    def shrink(self, one: OneBroker) -> bool:
        """A leader's change, also by one that does not know that it is none any more."""
        led = [kept for kept in one.cluster.cluster.view.journals.values() if kept.record.leader == one.cluster.me]
        if not led:
            return False
        kept = self.random.choice(led)
        leaving = self.random.choice(kept.record.isr)
        record = kept.record.without([leaving] if leaving != one.cluster.me else [])
        return isinstance(one.cluster.propose([Proposal(record, kept.revision)], as_controller=False), Done)

    def renew(self, one: OneBroker) -> bool:
        """Time goes by for the others."""
        self.machines.time.now_ms += SESSION_MS // 4
        if one.cluster.renew() is False and one.cluster.me is not None:
            one.register(one.cluster.me.broker_epoch)
        return True

    def restart(self, one: OneBroker) -> bool:
        if self.random.random() < 0.7:
            return False
        me = one.cluster.me
        again = self.machines.broker(one.number, registered=False)
        again.register(me.broker_epoch if me is not None and self.random.random() < 0.5 else 0)
        self.brokers[one.number] = again
        return True

    def judge(self) -> None:
        """Of what the store holds."""
        fresh = OneBroker(9, MemoryStore(self.machines.state), self.machines.time)
        image, cluster = fresh.catalog.image, fresh.cluster.cluster
        queues = [queue for topic in image.topics.values() for _, queue in topic.queues()]
        if image.slots is not None:
            queues += range(image.slots.first, image.slots.first + image.slots.count)
        assert len(queues) == len(set(queues)) and max(queues, default=0) < image.next_queue_id
        for topic in image.topics.values():
            factors = {len(cluster.view.journals[journal].record.replicas) for _, _, journal in topic.places()}
            assert len(factors) == 1, "and all journals are there"
        for number, kept in cluster.view.journals.items():
            record = kept.record
            assert number < cluster.next_journal and record.epoch <= cluster.view.last_epoch
            assert record.epoch >= self.epochs.get(number, 0)
            assert record.leader is None or record.member(record.leader.broker) is not None
            assert {member.broker for member in record.isr} <= set(record.replicas)
            self.epochs[number] = record.epoch
        for one in self.brokers.values():
            one.cluster.poll()
            assert one.catalog.image == image
            assert replace(one.cluster.cluster, view=cluster.view) == cluster
            view = one.cluster.cluster.view
            assert (view.journals, view.brokers, view.live) == (
                cluster.view.journals, cluster.view.brokers, cluster.view.live,
            )  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_many_brokers_at_once(seed: int) -> None:
    """Whatever is lost on the way: no queue and no epoch is given out twice, and all brokers see the same."""
    crowd = Crowd(seed)
    for _ in range(150):
        crowd.step()
    assert crowd.done > 20
