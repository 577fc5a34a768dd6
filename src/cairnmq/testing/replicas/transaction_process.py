"""A broker's process that serves transactions: plays the shells around their cores, on top of replication."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from cairnmq.codec.crc32c import crc32c
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.groups.offset_messages import OffsetCommit, OffsetErrors, Position
from cairnmq.storage.batches.markers import Marker, check_marker
from cairnmq.storage.queue.producers import Duplicate, check
from cairnmq.testing.replicas.broker_process import BrokerProcess, Hosted, Shared, Waiting
from cairnmq.testing.replicas.judge import Acks
from cairnmq.testing.replicas.machine import Machine, ModelEntry
from cairnmq.testing.replicas.transaction_desk import OffsetsEnd, Told, TransactionDesk
from cairnmq.testing.replicas.transaction_links import ControlLinks, IsOpen
from cairnmq.testing.replicas.transaction_model import Batch, Content, JournalState
from cairnmq.transactions.guards import Guards
from cairnmq.transactions.messages import Add, End, Init, Producer, Response
from cairnmq.types import Slots

OK = ErrorCode.NONE
NOT_LEADER, NOT_COORDINATOR = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR
AGAIN = ErrorCode.NOT_ENOUGH_REPLICAS
SOURCE = b"source".ljust(16)

Respond = Callable[[Response], None]
Codes = Sequence[ErrorCode]


class TransactionShared(Shared):
    """What all processes of a world share."""

    slots: Slots
    contents: dict[int, Content]
    ids: list[int]  # producer ids that were given out
    late_share: float  # of messages on control links that come late

    def fresh_id(self) -> int:
        """Nobody has it."""
        self.ids.append(len(self.ids) + 1_000)
        return self.ids[-1]

    def journal_of_queue(self, queue: int) -> int:
        """Queues take the journals in turn."""
        return queue % len(self.slots.cycle)

    def journal_of_key(self, key: str) -> int:
        """Of a group or transactional id."""
        return self.slots.of(crc32c(key.encode())).journal


class Entered(Response, frozen=True, gc=False):
    """What a coordinator says about somebody who asks for a producer."""

    coordinator_epoch: int = -1


class TransactionProcess(BrokerProcess):
    """Leads queues, and coordinates the transactional ids and groups of the slots in the journals that it leads."""

    shared: TransactionShared

    def __init__(self, machine: Machine, shared: TransactionShared) -> None:
        super().__init__(machine, shared)
        self.states: dict[int, JournalState] = {}
        self.desks: dict[int, TransactionDesk] = {}
        self.guards = Guards()
        self.links: ControlLinks[object] = ControlLinks(self)

    # --------------------------------------------------------------------------------------------------- what is led

    def lead(self, hosted: Hosted, *args: object) -> None:
        """What the journal means is folded first."""
        self.states[hosted.number] = JournalState.of(hosted.disk.entries, self.shared.contents)
        super().lead(hosted, *args)  # type: ignore[arg-type]  # as they came
        if hosted.leader is not None:
            hosted.leader.durable_wanted = hosted.disk.end
            self.sync(hosted)

    def stop_leading(self, hosted: Hosted) -> None:
        """Coordinators and guards end with it."""
        desk = self.desks.pop(hosted.number, None)
        if desk is not None:
            desk.close()
        if hosted.leader is not None:
            self.guards.close_all()
        super().stop_leading(hosted)
        self.states.pop(hosted.number, None)

    def moved(self, hosted: Hosted) -> None:
        """A coordinator is loaded when nothing that it will act on can be taken back (R24)."""
        super().moved(hosted)
        leader = hosted.leader
        if leader is not None and hosted.number not in self.desks and self.may_load(hosted):
            self.desks[hosted.number] = TransactionDesk(self, hosted.number, leader.epoch)

    def may_load(self, hosted: Hosted) -> bool:
        """The start of the epoch is durable."""
        return hosted.leader is not None and hosted.leader.durable_end > hosted.leader.start

    def tick(self) -> None:
        """Time ends transactions too."""
        super().tick()
        for desk in list(self.desks.values()):
            if self.may_serve(desk.journal):
                desk.time_limits(self.shared.schedule.now_ms)

    def may_serve(self, journal: int) -> bool:
        """No other broker can act as its leader by now (R18)."""
        hosted = self.hosted[journal]
        if hosted.leader is None or hosted.lease is None:
            return False
        return hosted.leader.members() == {hosted.leader.me} or hosted.lease.holds(self.shared.schedule.now_ms)

    def desk_of(self, key: str) -> TransactionDesk | None:
        """What coordinates an id here."""
        journal = self.shared.journal_of_key(key)
        desk = self.desks.get(journal)
        return desk if desk is not None and self.may_serve(journal) else None

    def leader_of(self, journal: int) -> tuple[int, int] | None:
        """Broker and epoch, as this process knows it."""
        if self.view is None:
            return None
        record = self.view.journals[journal].record
        return None if record.leader is None else (record.leader.broker, record.epoch)

    def stage(self, journal: int, content: Content, told: Callable[[bool], None]) -> bool:
        """`told` is called later: whether it is durable. False: this broker does not lead the journal."""
        hosted = self.hosted.get(journal)
        if hosted is None or hosted.leader is None:
            return False
        payload = len(self.shared.contents) + 1
        self.shared.contents[payload] = content
        start = hosted.disk.end
        size = self.shared.schedule.random.randint(1, 9)
        hosted.append(ModelEntry(hosted.leader.epoch, start, start + size, payload))
        self.states[journal].apply(content)
        hosted.leader.written()
        self._wait(hosted, payload, told)
        return True

    def _wait(self, hosted: Hosted, payload: int, told: Callable[[bool], None]) -> None:
        assert hosted.leader is not None

        def later(met: bool) -> None:
            self.later(0, lambda: told(met))

        hosted.waiting.append(Waiting(payload, hosted.disk.end, Acks.COMMIT, later))
        hosted.leader.durable_wanted = hosted.disk.end
        self.sync(hosted)
        self.later(0, lambda: self.moved(hosted))
        for other in self.shared.processes.values():
            if isinstance(other, TransactionProcess) and other is not self:
                other.later(self.shared.schedule.delay(10), partial(_fetch, other, hosted.number))

    # ------------------------------------------------------------------------------------------ what producers ask for

    def init(self, command: Init, respond: Respond) -> None:
        """InitProducerId."""
        desk = self.desk_of(command.transactional_id)
        if desk is None:
            respond(Response(NOT_COORDINATOR))
            return
        fresh_id = self.shared.fresh_id() if desk.transactions.init_needs_id(command) else -1
        now_ms = self.shared.schedule.now_ms
        decision = desk.transactions.init(command, _ticket(respond), now_ms, fresh_id)
        desk.carry_out(command.transactional_id, decision)

    def add(self, command: Add, respond: Respond) -> None:
        """AddPartitionsToTxn, AddOffsetsToTxn."""
        desk = self.desk_of(command.transactional_id)
        if desk is None:
            respond(Response(NOT_COORDINATOR))
            return
        decision = desk.transactions.add(command, _ticket(respond), self.shared.schedule.now_ms)
        desk.carry_out(command.transactional_id, decision)

    def end(self, command: End, respond: Respond) -> None:
        """EndTxn."""
        desk = self.desk_of(command.transactional_id)
        if desk is None:
            respond(Response(NOT_COORDINATOR))
            return
        decision = desk.transactions.end(command, _ticket(respond), self.shared.schedule.now_ms, -1)
        desk.carry_out(command.transactional_id, decision)

    def produce(self, transactional_id: str, batch: Batch, adds: bool, respond: Respond) -> None:  # type: ignore[override]
        """A batch of a transaction. `adds`: of version 2."""
        journal, producer = self.shared.journal_of_queue(batch.queue), Producer(batch.producer_id, batch.epoch)
        state = self.states.get(journal)
        if state is None:
            respond(Response(NOT_LEADER))
            return
        if state.queue(batch.queue).is_open(batch.producer_id, batch.epoch):
            self._append(journal, batch, adds, respond)
            return
        desk = self.desk_of(transactional_id)
        if desk is None:
            self._verified(
                Add(transactional_id, producer, queues=(batch.queue,)),
                batch.queue,
                adds,
                respond,
                lambda _: self._append(journal, batch, adds, respond),
            )
            return

        def admitted(answer: Response) -> None:
            error = answer.error or desk.transactions.verify(transactional_id, producer, queue=batch.queue)
            if error:
                respond(Response(error))
            else:
                self._append(journal, batch, adds, respond)

        if adds:
            self.add(Add(transactional_id, producer, queues=(batch.queue,)), admitted)
        else:
            admitted(Response(OK))

    def _verified(
        self,
        asked: Add,
        place: int | str,
        adds: bool,
        respond: Respond,
        go_on: Callable[[Entered], None],
    ) -> None:
        """Asks the coordinator on another broker; goes on if nothing has overtaken the answer (R27)."""
        leader = self.leader_of(self.shared.journal_of_key(asked.transactional_id))
        if leader is None or leader[0] == self.id:
            respond(Response(AGAIN))
            return
        guard = self.guards.open(place, asked.producer)

        def entered(answer: object) -> None:
            is_open = guard.is_open
            self.guards.done(guard)
            if not isinstance(answer, Entered) or not is_open:
                respond(Response(AGAIN))
            elif answer.error:
                respond(Response(answer.error))
            else:
                go_on(answer)

        def serve(other: TransactionProcess, tell: Callable[[object], None], is_open: IsOpen) -> None:
            other.enter(asked, adds, tell)

        self.links.ask(leader[0], serve, entered)

    def enter(self, asked: Add, adds: bool, tell: Callable[[Entered], None]) -> None:
        """A leader elsewhere asks for a producer."""
        desk = self.desk_of(asked.transactional_id)
        if desk is None:
            tell(Entered(NOT_COORDINATOR))
            return

        def answer(response: Response) -> None:
            error, core = response.error, desk.transactions
            for queue in asked.queues:
                error = error or core.verify(asked.transactional_id, asked.producer, queue=queue)
            for group in asked.groups:
                error = error or core.verify(asked.transactional_id, asked.producer, group=group)
            tell(Entered(error, coordinator_epoch=desk.epoch))

        if adds:
            self.add(asked, answer)
        else:
            answer(Response(OK))

    def _append(self, journal: int, batch: Batch, adds: bool, respond: Respond) -> None:
        state, hosted = self.states.get(journal), self.hosted[journal]
        if state is None or hosted.leader is None:
            respond(Response(NOT_LEADER))
            return
        row = state.queue(batch.queue).producers.get(batch.producer_id)
        verdict = check(row, batch.epoch, batch.sequence, 1, transactional=True)
        told = _told(respond)
        if isinstance(verdict, Refusal):
            respond(Response(verdict.code))
        elif isinstance(verdict, Duplicate):
            self._wait(hosted, 0, told)
        elif row is None and batch.sequence and adds:
            respond(Response(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
        else:
            now_ms = self.shared.schedule.now_ms
            fields = batch.queue, batch.producer_id, batch.epoch, batch.sequence, batch.transaction
            self.stage(journal, Batch(*fields, now_ms), told)

    def commit_offset(self, asked: Add, transaction: int, adds: bool, respond: Respond) -> None:
        """TxnOffsetCommit of one group, whose offset is the number of the transaction."""
        (group,) = asked.groups
        desk = self.desk_of(group)
        if desk is None:
            respond(Response(NOT_COORDINATOR))
            return

        def store(entered: Entered) -> None:
            if desk.is_closed:
                respond(Response(NOT_COORDINATOR))
                return

            def stored(told: OffsetErrors | None) -> None:
                respond(Response(NOT_COORDINATOR if told is None else told.errors[0]))

            position = Position(SOURCE, 0, transaction)
            producer, epoch = asked.producer, entered.coordinator_epoch
            command = OffsetCommit(
                group, "", None, -1, [position],
                producer_id=producer.producer_id, producer_epoch=producer.epoch, coordinator_epoch=epoch,
            )  # fmt: skip
            desk.offset_writes.submit(group, desk.groups.commits.commit(command, stored, self.shared.schedule.now_ms))

        if self.desk_of(asked.transactional_id) is None:
            self._verified(asked, group, adds, respond, store)
            return

        def answer(entered: Entered) -> None:
            if entered.error:
                respond(Response(entered.error))
            else:
                store(entered)

        self.enter(asked, adds, answer)

    # ------------------------------------------------------------------------------------------------- ends by others

    def ask_markers(self, journal: int, markers: Sequence[Marker], told: Told) -> None:
        """To the leader of a journal, perhaps this broker."""
        leader = self.leader_of(journal)
        if leader is None:
            self.later(0, lambda: told(None))
            return
        epoch = leader[1]

        def serve(other: TransactionProcess, tell: Callable[[Codes], None], is_open: IsOpen) -> None:
            other.write_markers(journal, epoch, markers, tell)

        self._ask(leader[0], serve, told)

    def ask_ends(self, journal: int, ends: Sequence[OffsetsEnd], told: Told) -> None:
        """To the leader of a journal with slots, perhaps this broker."""
        leader = self.leader_of(journal)
        if leader is None:
            self.later(0, lambda: told(None))
            return
        epoch = leader[1]

        def serve(other: TransactionProcess, tell: Callable[[Codes], None], is_open: IsOpen) -> None:
            other.end_offsets(journal, epoch, ends, tell, is_open)

        self._ask(leader[0], serve, told)

    def _ask(
        self,
        broker: int,
        serve: Callable[[TransactionProcess, Callable[[Codes], None], IsOpen], None],
        told: Told,
    ) -> None:
        if broker == self.id:
            serve(self, lambda codes: self.later(0, lambda: told(codes)), lambda: True)
        else:
            self.links.ask(broker, serve, told)  # type: ignore[arg-type]  # the response is what was asked for

    def write_markers(self, journal: int, epoch: int, markers: Sequence[Marker], tell: Callable[[Codes], None]) -> None:
        """Markers for queues of one journal, of its leader in one epoch."""
        hosted = self.hosted.get(journal)
        leader = None if hosted is None else hosted.leader
        if hosted is None or leader is None or leader.epoch != epoch:
            tell([NOT_LEADER] * len(markers))
            return
        codes = [self._write_marker(journal, marker) for marker in markers]

        def stored(met: bool) -> None:
            tell(codes if met else [NOT_LEADER] * len(markers))

        self._wait(hosted, 0, stored)

    def _write_marker(self, journal: int, marker: Marker) -> ErrorCode:
        producer = Producer(marker.producer_id, marker.producer_epoch)
        self.guards.ended(marker.queue_id, producer, raised=marker.transaction_version > 1)
        row = self.states[journal].queue(marker.queue_id).producers.get(marker.producer_id)
        verdict = check_marker(row, marker, None)
        if isinstance(verdict, Refusal):
            return verdict.code
        if verdict:
            self.stage(journal, marker, lambda met: None)
        return OK

    def end_offsets(
        self, journal: int, epoch: int, ends: Sequence[OffsetsEnd], tell: Callable[[Codes], None], is_open: IsOpen
    ) -> None:
        """Ends in groups of one journal, of its coordinator in one epoch."""
        desk = self.desks.get(journal)
        if desk is None or desk.epoch != epoch:
            tell([NOT_COORDINATOR] * len(ends))
            return
        codes: dict[int, ErrorCode] = {}

        def told(at: int, code: ErrorCode) -> None:
            codes[at] = code
            if len(codes) == len(ends):
                tell([codes[each] for each in range(len(ends))])

        for at, end in enumerate(ends):
            self.guards.ended(end.group, end.producer, raised=end.limit.raised)
            desk.end_offsets(end, is_open, partial(told, at))


def _ticket(respond: Respond) -> Callable[[Response | None], None]:
    return lambda response: respond(response or Response(NOT_COORDINATOR))


def _told(respond: Respond) -> Callable[[bool], None]:
    return lambda met: respond(Response(OK if met else NOT_LEADER))


def _fetch(process: TransactionProcess, journal: int) -> None:
    """A request of this follower waits at the leader, and there is something now."""
    hosted = process.hosted.get(journal)
    if hosted is not None and hosted.follower is not None and process.shared.schedule.random.random() < 0.7:
        process.ask(hosted, hosted.follower)
