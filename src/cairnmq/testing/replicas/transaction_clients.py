"""Transactional producers of both versions against several brokers: they know only what they were answered."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from cairnmq.errors import ErrorCode
from cairnmq.testing.replicas.transaction_model import Batch
from cairnmq.testing.replicas.transaction_process import AGAIN, NOT_COORDINATOR, NOT_LEADER, TransactionProcess
from cairnmq.transactions.messages import Add, End, Init, Producer, Response

if TYPE_CHECKING:
    from cairnmq.testing.replicas.transaction_world import TransactionWorld

PATIENCES_MS = (700, 2_000, 2_000)
TIMEOUT_MS = 10_000
GIVE_UP = 1  # times without a response
RETRIABLE = (AGAIN, NOT_COORDINATOR, NOT_LEADER, ErrorCode.CONCURRENT_TRANSACTIONS)

Handle = Callable[[TransactionProcess, Callable[[Response], None]], None]
Hear = Callable[[Response], None]


class TransactionalClient:
    """One instance of a transactional id. `modern`: transaction version 2. `number`: whose transactions are later."""

    def __init__(self, world: TransactionWorld, transactional_id: str, modern: bool) -> None:
        self.world = world
        self.id = transactional_id
        self.group = f"of-{transactional_id}"
        self.modern = modern
        self.in_group = world.random.choice((0.2, 0.5, 0.8))  # how often it commits offsets instead of writing
        self.patience_ms = world.random.choice(PATIENCES_MS)
        self.me: Producer | None = None
        self.known: Producer | None = None  # with which it asks for its next epoch (KIP-360)
        self.is_gone = False
        self.transaction = 0
        self.left = 0  # operations of the open transaction
        self.sequences: dict[int, int] = {}
        self.added: set[int | str] = set()
        self._asked = 0
        self._connection = 0
        self._arrives: dict[int, int] = {}

    @property
    def is_idle(self) -> bool:
        """Between transactions."""
        return self.transaction == 0

    def go(self) -> None:
        """The next step, soon."""
        self.world.schedule.after(self.world.random.randint(1, 40), self._step)

    def _step(self) -> None:
        random = self.world.random
        if self.is_gone:
            return
        if self.is_idle and not self.world.is_producing:
            self.is_gone = True
        elif self.me is None:
            self._init()
        elif self.is_idle:
            self.transaction = self.world.next_transaction()
            self.left, self.added = random.randint(1, 3), set()
            self.go()
        elif self.left > 0:
            self.left -= 1
            if random.random() < self.in_group:
                self._commit_offset()
            else:
                self._write(random.randrange(self.world.queues))
        else:
            self._end(random.random() < 0.7)

    def _init(self) -> None:
        command = Init(self.id, TIMEOUT_MS, self.known)

        def heard(answer: Response) -> None:
            self.me, self.known = Producer(answer.producer_id, answer.epoch), None
            self.sequences = {}
            self.world.judge.given(answer.producer_id, answer.epoch, self.world.schedule.now_ms)
            self.go()

        self._ask(self.id, lambda process, respond: process.init(command, respond), heard)

    def _write(self, queue: int) -> None:
        assert self.me is not None
        if not self.modern and queue not in self.added:
            self._add(queue, partial(self._write, queue))
            return
        batch = Batch(queue, self.me.producer_id, self.me.epoch, self.sequences.get(queue, 0), self.transaction)
        self.sequences[queue] = batch.sequence + 1

        def handle(process: TransactionProcess, respond: Callable[[Response], None]) -> None:
            process.produce(self.id, batch, self.modern, respond)

        def heard(_: Response) -> None:
            self.world.judge.acknowledged_batches.append(batch)
            self.go()

        self._ask(queue, handle, heard, self._give_up, may_linger=True)

    def _add(self, what: int | str, then: Callable[[], None]) -> None:
        assert self.me is not None
        queues, groups = ((what,), ()) if isinstance(what, int) else ((), (what,))
        command = Add(self.id, self.me, queues, groups)

        def heard(_: Response) -> None:
            self.added.add(what)
            then()

        self._ask(self.id, lambda process, respond: process.add(command, respond), heard)

    def _commit_offset(self) -> None:
        assert self.me is not None
        if not self.modern and self.group not in self.added:
            self._add(self.group, self._commit_offset)
            return
        command, transaction = Add(self.id, self.me, groups=(self.group,)), self.transaction

        def handle(process: TransactionProcess, respond: Callable[[Response], None]) -> None:
            process.commit_offset(command, transaction, self.modern, respond)

        def heard(_: Response) -> None:
            self.world.judge.offsets[transaction] = self.group
            self.go()

        self._ask(self.group, handle, heard, self._give_up)

    def _end(self, commit: bool, then: Callable[[], None] | None = None) -> None:
        assert self.me is not None
        command, transaction = End(self.id, self.me, commit, self.modern), self.transaction

        def heard(answer: Response) -> None:
            self.world.judge.told_end(transaction, commit)
            if self.modern:
                self.me = Producer(answer.producer_id, answer.epoch)
                self.sequences = {}
            self.transaction = 0
            if then is not None:
                then()
            self.go()

        self._ask(self.id, lambda process, respond: process.end(command, respond), heard)

    def _give_up(self) -> None:
        """It does not know what became of a request, so it aborts. A producer of version 1 wants another epoch."""

        def begin_anew() -> None:
            if not self.modern:
                self.me, self.known = None, self.me

        self._end(False, begin_anew)

    def _out(self) -> None:
        """It is fenced, or its transaction is gone."""
        self.me = self.known = None
        self.transaction = 0
        if self.world.has_other(self) and self.world.random.random() < 0.9:
            self.is_gone = True
        self.go()

    # ----------------------------------------------------------------------------------------------------- requests

    def _ask(
        self,
        place: int | str,
        handle: Handle,
        heard: Hear,
        give_up: Callable[[], None] | None = None,
        *,
        may_linger: bool = False,
        silent: int = 0,
    ) -> None:
        """Until there is an answer; one that is final ends this instance's epoch. `may_linger`: what had no answer may
        arrive late all the same."""
        if self.is_gone:
            return
        world, schedule = self.world, self.world.schedule
        self._asked += 1
        asked, connection = self._asked, self._connection

        def again(silent: int) -> None:
            if self._asked == asked:
                if give_up is not None and silent >= GIVE_UP and world.random.random() < 0.4:
                    give_up()
                else:
                    self._ask(place, handle, heard, give_up, may_linger=may_linger, silent=silent)

        def late() -> None:
            if self._asked == asked:
                self._connection += 1
                again(silent + 1)

        def hear(answer: Response) -> None:
            if self._asked != asked or self.is_gone:
                return
            if answer.error in RETRIABLE:
                schedule.after(world.random.randint(20, 150), lambda: again(silent))
            elif answer.error:
                self._asked += 1
                world.counts[answer.error.name] += 1
                self._out()
            else:
                self._asked += 1
                heard(answer)

        schedule.after(self.patience_ms, late)
        broker = world.believed_leader(place)
        if broker is None or world.random.random() < 0.02:
            return
        lingers = may_linger and world.random.random() < 0.3
        at = self._arrival(broker, lingers)

        def arrive() -> None:
            process = world.shared.processes.get(broker)
            if isinstance(process, TransactionProcess):
                process.guarded(lambda: start(process))()

        def start(process: TransactionProcess) -> None:
            if lingers or connection == self._connection:
                handle(process, lambda answer: schedule.after(schedule.delay(), lambda: hear(answer)))

        schedule.after(at - schedule.now_ms, arrive)

    def _arrival(self, broker: int, lingers: bool) -> int:
        """When a request arrives. Those of one connection keep their order."""
        schedule, random = self.world.schedule, self.world.random
        at = schedule.now_ms + schedule.delay(rarely_ms=400)
        if lingers:
            return at + (random.randint(0, 2_500) if random.random() < 0.2 else 0)
        at = self._arrives[broker] = max(at, self._arrives.get(broker, 0))
        return at
