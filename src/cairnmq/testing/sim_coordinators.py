"""The whole broker but its loop on the simulated machine: groups and transactions decide, their facts go through the
journal, answers wait for them, markers follow; everything is lost in a stop but the disks, and loaded again.

The cores, the order of facts and answers (`fact_log.py` and `ordered_writes.py` of `broker/coordination`) and storage
are the real ones;
what the event loop does between them is played here, step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count

from cairnmq.broker.coordination.fact_log import Stored
from cairnmq.broker.coordination.slot_keys import place_of
from cairnmq.codec.batch import read_header, set_append_time, set_offset_and_epoch
from cairnmq.codec.records import build_batch
from cairnmq.decision import KeyedRecord
from cairnmq.errors import ErrorCode, Fault, Refusal
from cairnmq.groups.offset_messages import OffsetCommit, OffsetErrors, Position
from cairnmq.groups.offsets import OffsetKey
from cairnmq.groups.partitions import stored as in_order
from cairnmq.groups.stored_group import SPACE as GROUP_SPACE
from cairnmq.storage.batches.markers import Marker, marker_batch
from cairnmq.storage.engine import Engine
from cairnmq.storage.files.format import Keyed
from cairnmq.storage.live.ack_policy import MARKER, AckPoint, durability
from cairnmq.storage.live.appends import StagedMarkers
from cairnmq.storage.live.queue import Queue
from cairnmq.testing.fake_topics import FakeTopic, FakeView
from cairnmq.testing.oracle import JournalModel, QueueModel, demand
from cairnmq.testing.sim_checks import name
from cairnmq.testing.sim_clients import records_of
from cairnmq.testing.sim_compaction import CompactionWorld
from cairnmq.testing.sim_desk import Desks, loaded, records_of_all, stored_of
from cairnmq.testing.sim_ledger import Ledger, check_open
from cairnmq.testing.sim_members import Member, new_member, owners
from cairnmq.testing.sim_metadata import new_producer_id
from cairnmq.testing.sim_producers import TransactionalProducer
from cairnmq.transactions.record import TransactionRecord
from cairnmq.transactions.transactions import Transactions

GROUPS = ("g", "h")
IDS = ("t", "u")
BROKER_FLUSH = "commit"
SOURCE = b"source".ljust(16)  # a topic that is never deleted: what transactions read
MEMBERS_MAX, PRODUCERS_MAX = 5, 3


class CoordinatorWorld(CompactionWorld):
    """The workload of `CompactionWorld`, with groups and transactions as their coordinators run them."""

    def __init__(self, seed: int, *, branch_share: float = 0.25, trace: Callable[[str], None] | None = None) -> None:
        self.ledger = Ledger()
        self.members: list[Member] = []
        self.producers: list[TransactionalProducer] = []
        self.numbers = count(1)  # of transactions
        self.members_born = 0
        self.view_version = 0
        self.moves = 0  # of coordinators
        self.view_of: tuple[object, ...] = ()
        super().__init__(seed, branch_share=branch_share, trace=trace)

    def _actions(self) -> list[tuple[int, Callable[[], None]]]:
        return [
            *super()._actions(),
            (40, self._member_acts),
            (20, self._commit),
            (60, self._producer_acts),
            (6, self._retry_endings),
            (3, self._time_limits),
            (8, self._fetch_offsets),
            (60, self._flush),
            (6, self._move),
            (30, self._load),
        ]

    # ------------------------------------------------------------------------------------------ a broker's life

    def _open(self, event: str) -> None:
        super()._open(event)
        self.later: list[Callable[[], None]] = []  # what the event loop would call soon
        self.desks = Desks(self)
        self._look()
        for journal in self.desks.journals:
            self.desks.add(journal, self.engine.keyed)
        for member in self.members:
            member.forget()
        for producer in self.producers:
            producer.forget()
        for desk in self.desks.all():
            desk.open()

    def topic_ids(self) -> frozenset[bytes]:
        return frozenset([SOURCE, *(spec.topic_id for spec in self.specs.values())])

    def _move(self) -> None:
        """The leader of a journal is not its leader any more, at any moment."""
        journal = self.desks.drop(self.rng)
        if journal is not None:
            self._forget(journal)
            self.moves += 1

    def _forget(self, journal: int | None = None) -> None:
        """Clients hear nothing of what they asked."""
        for member in self.members:
            if journal in (None, self.desks.journal_of(member.group)):
                member.forget()
        for producer in self.producers:
            if journal in (None, self.desks.journal_of(producer.transactional_id)):
                producer.forget()

    def _load(self) -> None:
        """Another one begins, once nothing in the journal can be taken back, with what is stored in it."""
        for journal in self.desks.unled():
            if self.still(journal):
                self._look()
                self.desks.add(journal, self.models[journal].tip().keyed).open()

    def still(self, journal: int) -> bool:
        """Makes everything in a journal durable; False if it takes no more."""
        lane = self.lanes[journal]
        if lane.path.stopped is None:
            self._write_all(lane, self.models[journal])
            self._sync_all(lane, self.models[journal])
        return lane.path.stopped is None and self.desks.is_still(journal)

    def run_later(self) -> None:
        while self.later:
            self.later.pop(0)()

    def _stop(self) -> None:
        """What was decided is still stored, and its markers are written."""
        for _ in range(5):
            for lane, model in self.pairs:
                self._write_all(lane, model)
                self._sync_all(lane, model)
            self.run_later()
        super()._stop()

    def _flush(self) -> None:
        """Journals catch up: without this, chance rarely gets a transaction to its end."""
        for lane, model in self.pairs:
            self._write_all(lane, model)
            if lane.path.sync_by_ms is not None:
                self._sync_all(lane, model)

    def put_facts(self, facts: Sequence[KeyedRecord], stored: Stored) -> None:
        slot = place_of(self.metadata.slots, *facts[0][:2])
        assert slot is not None
        appends, model = self.engine.appends, self.models[slot.journal]
        for fact in facts:
            self.ledger.decided(fact)
        point = appends.put_keyed(slot, [Keyed(*fact) for fact in facts], BROKER_FLUSH, self.now)
        if isinstance(point, Refusal):
            self.later.append(partial(stored, Fault(point.message)))
            return
        end = point.end

        def released(met: bool) -> None:
            self.waiting -= 1
            if met:
                model.promise(end)
            stored(None if met else Fault("taken back"))

        self.waiting += 1
        appends.when_certain(point, released)

    # ----------------------------------------------------------------------------------------------------- groups

    def _look(self) -> None:
        """What groups see of the topics."""
        counts: dict[tuple[str, bytes], int] = {}
        for spec in self.specs.values():
            counts[spec.topic, spec.topic_id] = counts.get((spec.topic, spec.topic_id), 0) + 1
        if self.view_of != (now := tuple(counts.items())):
            self.view_of, self.view_version = now, self.view_version + 1
        topics = {topic: FakeTopic(topic, topic_id, count) for (topic, topic_id), count in counts.items()}
        self.view = FakeView(self.view_version, topics)
        for desk in self.desks.all():
            desk.groups.view = self.view

    def topic_dropped(self, topic_id: bytes) -> None:
        super().topic_dropped(topic_id)
        self.ledger.forget_topic(topic_id)
        for desk in self.desks.all():
            for some in desk.facts.by_slot(desk.groups.commits.of_topic(topic_id)):
                desk.facts.submit(some, lambda fault: None)

    def _member_acts(self) -> None:
        self._look()
        topics = sorted(self.view.topics)
        if not topics:
            return
        if len(self.members) < MEMBERS_MAX and self.rng.random() < 0.25 or not self.members:
            self.members_born += 1
            self.members.append(new_member(self.rng, self.members_born, GROUPS, topics))
        member = self.rng.choice(self.members)
        ends, desk = self.rng.random(), self.desks.of(member.group)
        if ends < 0.06:
            self.members.remove(member)
            if ends < 0.04 and desk is not None:  # the others vanish without a word
                desk.carry_out_group(member.group, member.leave(desk.groups, self.now))
            return
        decision = None if desk is None else member.act(desk.groups, self.now, self.ledger)
        if decision is not None and desk is not None:
            self.tally.rebalances += any(fact[0] == GROUP_SPACE for fact in decision.records)
            desk.carry_out_group(member.group, decision)

    def _commit(self) -> None:
        """Whatever a member owns, further than anybody has committed before."""
        member = self.rng.choice(self.members) if self.members else None
        places = [(topic, index) for topic, indexes in in_order(member.owned) for index in indexes] if member else ()
        desk = self.desks.of(member.group) if member else None
        if member is None or desk is None or not places:
            return
        known = {spec.topic_id for spec in self.specs.values()}
        positions = [Position(topic_id, index, self.serial + 1) for topic_id, index in places if topic_id in known]
        command = OffsetCommit(member.group, member.member_id, member.instance, member.number, positions)
        if desk.groups.commits.error(command, self.now) or not positions:
            return
        self.serial += 1
        keys = [OffsetKey(member.group, one.topic_id, one.partition) for one in positions]
        offset = self.serial
        for key in keys:
            self.ledger.tried.setdefault(key, []).append(offset)

        def stored(told: OffsetErrors | None) -> None:
            if told is not None:
                self.tally.commits += 1
                for key in keys:
                    self.ledger.acknowledged(key, offset)

        desk.offset_writes.submit(member.group, desk.groups.commits.commit(command, stored, self.now))

    def _fetch_offsets(self) -> None:
        for journal, desk in self.desks.by_journal.items():
            self.ledger.check_offsets(desk.groups.offsets, self.desks.kept_in(journal), seen=True)

    def _time_limits(self) -> None:
        self._look()
        for desk in self.desks.all():
            for group, decision in desk.groups.advance(self.now):
                desk.carry_out_group(group, decision)
            for transactional_id, ended in desk.transactions.advance(self.now, self.now):
                desk.carry_out_transaction(transactional_id, ended)

    # ----------------------------------------------------------------------------------------------- transactions

    def _producer(self) -> TransactionalProducer:
        """A new one of an id that is taken makes a zombie of the other."""
        if len(self.producers) < PRODUCERS_MAX and self.rng.random() < 0.1 or not self.producers:
            self.producers.append(TransactionalProducer(self.rng.choice(IDS), self.rng.random() < 0.5, self.numbers))
        if len(self.producers) == PRODUCERS_MAX and self.rng.random() < 0.02:
            self.producers.pop(0)
        return self.rng.choice(self.producers)

    def _producer_acts(self) -> None:
        rng, producer = self.rng, self._producer()
        desk = self.desks.of(producer.transactional_id)
        if desk is None:
            return
        core = desk.transactions
        if producer.waiting:
            self._producer_waits(producer, core)
            return
        me = producer.transactional_id
        if producer.me is None:
            if (pid := new_producer_id(self)) is not None:
                desk.carry_out_transaction(me, producer.init(core, self.now, pid))
        elif producer.ending is not None or (producer.begun and rng.random() < 0.25):
            commit = rng.random() < 0.6
            desk.carry_out_transaction(me, producer.end(core, self.now, commit, self.ledger))
        elif producer.in_group and rng.random() < 0.5:
            self._commit_in_transaction(producer, core)
        elif producer.queues and rng.random() < 0.6:
            self._write_in_transaction(producer, core)
        else:
            queue = self.any_queue()
            queues = [queue.queue_id] if queue is not None else []
            groups = [f"of-{me}"] if rng.random() < 0.4 or not queues else []
            desk.carry_out_transaction(me, producer.add(core, self.now, queues, groups))

    def _producer_waits(self, producer: TransactionalProducer, core: Transactions) -> None:
        if self.rng.random() < 0.05:
            producer.forget()  # the connection broke
        elif producer.me is not None and producer.queues and producer.ending is None and self.rng.random() < 0.3:
            self._write_in_transaction(producer, core)  # a wrong client: it does not wait

    def _write_in_transaction(self, producer: TransactionalProducer, core: Transactions) -> None:
        queue = self.engine.queues.get(self.rng.choice(sorted(producer.queues)))
        assert producer.me is not None
        if queue is None:
            return
        pid, epoch = producer.me.producer_id, producer.me.epoch
        error = core.verify(producer.transactional_id, producer.me, queue=queue.queue_id)
        if error:
            if error is not ErrorCode.INVALID_TXN_STATE:  # that one is for who did not wait
                producer.out()
            return
        lane, row = self.lanes[queue.journal], queue.state.producers.get(pid)
        sequence = row.batches[-1][1] + 1 if row is not None and row.epoch == epoch and row.batches else 0
        self.serial += 1
        data = build_batch(
            records_of(self.rng, self.serial, self.now, self.keys), producer_id=pid, producer_epoch=epoch,
            base_sequence=sequence, transactional=True,
        )  # fmt: skip
        batch = memoryview(bytearray(data))
        placed = self.engine.appends.append(queue, batch, -1, self.now, in_transaction=True)
        if isinstance(placed, Refusal):
            demand(lane.path.stopped is not None, name(queue), "refuses a transaction:", placed.message)
            return
        assert not placed.is_duplicate, placed
        self.ledger.wrote(pid, self.serial, producer.transaction)
        self._staged(queue, bytes(batch), placed, None)

    def _commit_in_transaction(self, producer: TransactionalProducer, core: Transactions) -> None:
        group, transaction = f"of-{producer.transactional_id}", producer.transaction
        assert producer.me is not None
        desk = self.desks.of(group)
        if desk is None:
            return
        if core.verify(producer.transactional_id, producer.me, group=group):
            producer.out()
            return
        where = OffsetKey(group, SOURCE, 0)
        position = Position(SOURCE, 0, transaction)
        command = OffsetCommit(group, "", None, -1, [position], producer_id=producer.me.producer_id)

        def stored(told: OffsetErrors | None) -> None:
            if told is not None and producer.transaction == transaction and producer.ending is None:
                self.ledger.offset_of[transaction] = where

        desk.offset_writes.submit(group, desk.groups.commits.commit(command, stored, self.now))

    def stage_markers(self, markers: Sequence[Marker]) -> StagedMarkers:
        ends = {
            m.queue_id: self.engine.queues[m.queue_id].state.end for m in markers if m.queue_id in self.engine.queues
        }
        staged = self.engine.appends.append_markers(markers, self.now)
        for marker, end in zip(markers, staged.ends, strict=True):
            queue = self.engine.queues.get(marker.queue_id)
            if queue is not None and queue.state.end > ends[marker.queue_id]:
                self._marked(queue, marker, ends[marker.queue_id], end)
        return staged

    def _marked(self, queue: Queue, marker: Marker, offset: int, end: int) -> None:
        """What the model must know of a marker that was staged."""
        batch = marker_batch(marker, self.now)
        if queue.config.append_time:
            set_append_time(batch, read_header(batch).attributes, self.now)
        set_offset_and_epoch(batch, offset, self.lanes[queue.journal].path.journal.epoch)
        level = durability(MARKER, queue.config.flush, journals=len(self.lanes)).acknowledged
        self._staged(queue, bytes(batch), AckPoint(queue.journal, level, end), None)

    def _retry_endings(self) -> None:
        self.run_later()
        for desk in self.desks.all():
            desk.retry_endings()

    # ------------------------------------------------------------------------------------------------- the judge

    def _check(self) -> None:
        self.run_later()
        super()._check()

    def _check_live(self) -> None:
        super()._check_live()
        for journal, desk in self.desks.by_journal.items():
            of = self.desks.kept_in(journal)
            members = [member for member in self.members if of(member.group)]
            for place, who in owners(members, desk.groups).items():
                demand(len(who) == 1, place, "is read by", who)
            self.ledger.check_groups(desk.groups._stored, of)
            self.ledger.check_transactional_offsets(desk.groups.offsets, of)
        records = records_of_all(self.desks.all())
        for queue in self.engine.queues.values():
            held = self.live.get(queue.queue_id)
            if held is not None:
                self.ledger.check_queue(name(queue), held.readable())
            if not self.desks.unled():
                self._check_hanging(queue, records)
        keyed = {place: value for model in self.models.values() for place, value in model.tip().keyed.items()}
        for journal, desk in self.desks.by_journal.items():
            if desk.facts.is_idle and self.desks.is_still(journal):
                again = loaded(keyed, self.put_facts, self.metadata.slots, self.epoch, journal)
                demand(stored_of(again) == stored_of(desk), "groups or transactions are not what a replay gives")

    def _check_recovered(self, engine: Engine, models: dict[int, JournalModel]) -> None:
        super()._check_recovered(engine, models)
        desks = Desks(self)
        found = {
            journal: loaded(engine.keyed, self.put_facts, self.metadata.slots, engine.epoch, journal)
            for journal in desks.journals
        }
        for journal, cores in found.items():
            of = desks.kept_in(journal)
            self.ledger.check_groups(cores.groups._stored, of)
            self.ledger.check_offsets(cores.groups.offsets, of, seen=False)
            self.ledger.check_transactional_offsets(cores.groups.offsets, of)
        records = records_of_all(found.values())
        for queue in engine.queues.values():
            expected = models[queue.journal].settled.queues.get(queue.queue_id) or QueueModel()
            self.ledger.check_queue(name(queue), expected.readable())
            self._check_hanging(queue, records)

    def _check_hanging(self, queue: Queue, records: dict[int, TransactionRecord]) -> None:
        check_open(name(queue), queue.queue_id, queue.open_transactions.keys() & self.ledger.producers, records)
