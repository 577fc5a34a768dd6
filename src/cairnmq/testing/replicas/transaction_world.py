"""Transactions over simulated brokers under faults, from one seed: coordinators, queues and groups on any of them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from msgspec.structs import replace

from cairnmq.groups.groups import Groups
from cairnmq.testing.replicas.judge import Acks
from cairnmq.testing.replicas.transaction_clients import TransactionalClient
from cairnmq.testing.replicas.transaction_judge import TransactionJudge
from cairnmq.testing.replicas.transaction_model import Content
from cairnmq.testing.replicas.transaction_process import SOURCE, TransactionProcess, TransactionShared
from cairnmq.testing.replicas.world import ReplicaWorld, Shape
from cairnmq.transactions.record import IDLE
from cairnmq.types import Slots

IDS = ("t", "u", "v")
JOURNALS = 3
QUEUES = 6


def drawn(random: Random) -> Shape:
    """Several journals, and nothing but what is durable. No machine stays away for longer than clients wait."""
    shape = Shape.draw(random)
    spite = shape.spite and random.random() < 0.2
    if random.random() < 0.6:  # so calm that many transactions end; what is late hurts most then
        calm = Shape(shape.brokers, JOURNALS, 1, (Acks.COMMIT,), *([False] * 10))
        return replace(calm, kills=True, clean_stops=shape.clean_stops)
    return replace(shape, journals=JOURNALS, acks=(Acks.COMMIT,), min_isr=1, spite=spite, long_absence=False)


class TransactionWorld(ReplicaWorld):
    """The faults of `ReplicaWorld`, under transactional clients instead of its producers."""

    shared: TransactionShared
    waves = 8

    def __init__(self, seed: int) -> None:
        self.contents: dict[int, Content] = {}
        self.judge = TransactionJudge(self.contents)
        self.queues = QUEUES
        self.clients: list[TransactionalClient] = []
        self._transactions = 0
        super().__init__(seed)
        shape = self.shape
        if not any((shape.power, shape.pauses, shape.cuts, shape.store_away, shape.all_lose_power, shape.damage)):
            self.waves = 20  # calm
        shared = self.shared
        slots = Slots(100, 24, tuple(range(JOURNALS)))
        self.shared = TransactionShared(
            shared.schedule, shared.network, shared.store, self.judge, {}, 1, shared.prompt, slots, self.contents, [],
            self.random.choice((0.01, 0.05, 0.15)),
        )  # fmt: skip

    def _draw(self) -> Shape:
        return drawn(self.random)

    def start(self, broker: int) -> None:
        """A new process on a machine, after recovery."""
        machine = self.machines[broker]
        for journal in machine.journals.values():
            journal.recover()
        process = TransactionProcess(machine, self.shared)
        self.shared.processes[broker] = process
        process.start()

    # ------------------------------------------------------------------------------------------------- what goes on

    @property
    def is_producing(self) -> bool:
        """Transactions are begun."""
        return self._producing

    def next_transaction(self) -> int:
        """Later ones have higher numbers."""
        self._transactions += 1
        return self._transactions

    def believed_leader(self, place: int | str) -> int | None:
        """The broker that a client asks: mostly the one that leads now."""
        if self.random.random() < 0.05:
            return self.random.choice(list(self.machines))
        shared = self.shared
        journal = shared.journal_of_queue(place) if isinstance(place, int) else shared.journal_of_key(place)
        leader = self.store.journals[journal].record.leader
        return None if leader is None else leader.broker

    def has_other(self, client: TransactionalClient) -> bool:
        """Another instance of its id lives."""
        return any(other.id == client.id and other is not client and not other.is_gone for other in self.clients)

    def _produce(self) -> None:
        """Instances come, and what they replace becomes a zombie."""
        if not self._producing:
            return
        self.schedule.after(self.random.randint(300, 3_000), self._produce)
        living = [client for client in self.clients if not client.is_gone]
        missing = [each for each in IDS if all(client.id != each for client in living)]
        if missing or (len(living) < 5 and self.random.random() < 0.08):
            chosen = self.random.choice(missing or IDS)
            client = TransactionalClient(self, chosen, modern=self.random.random() < 0.5)
            self.clients.append(client)
            client.go()
        self._look_at_offsets()

    # ------------------------------------------------------------------------------------------------ what is true

    def _groups(self) -> Iterator[tuple[int, Groups]]:
        """Of coordinators that may serve."""
        for process in self.shared.processes.values():
            assert isinstance(process, TransactionProcess)
            if process.alive and not process.paused:
                for journal, desk in process.desks.items():
                    if process.may_serve(journal):
                        yield journal, desk.groups

    def _look_at_offsets(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for _, groups in self._groups():
            for group in list(groups.offsets.groups()):
                committed = groups.offsets.get(group, SOURCE, 0)
                if committed is not None:
                    self.judge.saw_offset(group, committed.offset)
                    found[group] = committed.offset
        return found

    def _unsettled(self) -> str:
        text = super()._unsettled()
        if text:
            return text
        if any(not client.is_gone for client in self.clients):
            return "clients do not come to an end"
        desks = [desk for process in self.shared.processes.values() for desk in getattr(process, "desks", {}).values()]
        if {desk.journal for desk in desks} != set(range(JOURNALS)):
            return "slots have no coordinator"
        for desk in desks:
            for transactional_id in desk.transactions.ids:
                record = desk.transactions.describe(transactional_id)
                if record is not None and record.state not in IDLE:
                    return f"{transactional_id} does not come to an end: {record}"
            if desk.groups.pending.groups():
                return f"offsets wait for ever: {desk.groups.pending._groups}"
        return f"transactions hang: {list(self.judge.open)}" if self.judge.open else ""

    def settle(self) -> None:
        """No transaction is begun; those that are open come to their end."""
        super().settle()
        self.judge.check_offsets(self._look_at_offsets())
        self.judge.check_batches()
