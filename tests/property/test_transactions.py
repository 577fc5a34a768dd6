"""Transactions under any sequence of requests, passing time, lost writes and crashes: no epoch twice, no torn end.

A rule-based machine plays producers that know only what they were answered, and zombies of them. Facts, batches and
markers reach their stores one by one, and a crash may come at any moment: what is not stored is gone, and so are the
answers that waited for it.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cairnmq.errors import ErrorCode
from cairnmq.transactions.messages import (
    Add,
    End,
    Filter,
    Init,
    Limits,
    Producer,
    Response,
    TransactionDecision,
    WriteMarkers,
)
from cairnmq.transactions.record import EPOCH_LAST_GIVEN, IDLE, PREPARED, State, TransactionRecord, decode, put
from cairnmq.transactions.transactions import Transactions

IDS = ("t", "u", "v")
QUEUES = (1, 2, 3)
GROUPS = ("g",)
TIMEOUT_MS, EXPIRATION_MS = 60_000, 1_000_000
OK = ErrorCode.NONE
RETRIED = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR)
FINAL = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE)


class Client:
    """A producer: what it calls itself, which version it speaks, and what it was told."""

    def __init__(self, name: str, transactional_id: str, modern: bool) -> None:
        self.name = name
        self.transactional_id = transactional_id
        self.modern = modern
        self.me: Producer | None = None
        self.waiting: Any = None  # the request it waits for
        self.sent: set[int] = set()  # batches of the open transaction that were acknowledged
        self.heard: ErrorCode | None = None
        self.ending: End | None = None  # what it asks for until it knows the result

    def __repr__(self) -> str:
        return self.name


class Place:
    """What a queue must keep: batches of open transactions, and how they ended. Or a group: pending offsets."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.open: dict[int, list[int]] = {}
        self.ended: dict[int, bool] = {}

    def mark(self, producer: Producer, commit: bool) -> None:
        if producer.epoch < self.epochs.get(producer.producer_id, -1):
            raise AssertionError("a marker of an epoch that is fenced here")
        self.epochs[producer.producer_id] = producer.epoch
        for batch in self.open.pop(producer.producer_id, ()):
            assert batch not in self.ended, "a batch ended twice"
            self.ended[batch] = commit


WHO = st.sampled_from([0, 0, 0, 1, 1, 2, 3])
AT_ONCE = st.sampled_from([True, True, False])  # the answer comes before anything else happens


class Machine(RuleBasedStateMachine):
    @initialize(raises=st.booleans(), ids_max=st.sampled_from([2, 2, 9]))
    def begin(self, raises: bool, ids_max: int) -> None:
        self.limits = Limits(
            timeout_max_ms=TIMEOUT_MS, expiration_ms=EXPIRATION_MS, ids_max=ids_max, raises_epochs=raises
        )
        self.now_ms = self.looked_ms = 1_000_000
        self.count = 0
        self.next_id = 100
        self.stored: dict[bytes, bytes] = {}
        self.core = Transactions(self.limits)
        self.under_way: deque[tuple[str, TransactionDecision]] = deque()
        self.endings: list[WriteMarkers] = []
        self.queues = {number: Place() for number in QUEUES}
        self.groups = {name: Place() for name in GROUPS}
        self.newest: dict[str, Producer] = {}  # who was last told to be the producer of an id
        self.given: dict[Producer, Client] = {}  # every id and epoch ever answered, and to whom
        self.told: dict[int, bool] = {}  # batch -> how its client was told that it ended
        self.alive: list[Client] = []
        for transactional_id, modern in (("t", True), ("t", raises), ("u", False)):
            self.arrive(transactional_id, modern)

    # ------------------------------------------------------------------------------------------ what producers do

    @rule(transactional_id=st.sampled_from(IDS), modern=st.booleans())
    def arrive(self, transactional_id: str, modern: bool) -> None:
        """A new instance; an older one of the same id may live on as a zombie."""
        self.count += 1
        self.alive.append(Client(f"c{self.count}", transactional_id, modern))
        self.init(0, False, True)

    @rule(who=WHO)
    def die(self, who: int) -> None:
        if len(self.alive) > 2:
            self.alive.pop(who % len(self.alive)).waiting = None

    @rule(who=WHO, goes_on=st.booleans(), at_once=AT_ONCE)
    def init(self, who: int, goes_on: bool, at_once: bool) -> None:
        """`goes_on`: it says who it is (KIP-360). A client asks again when it is told to wait."""
        client = self.who(who)
        for _ in range(3 if at_once else 1):
            if client.waiting is not None:
                return
            command = Init(client.transactional_id, TIMEOUT_MS, client.me if goes_on else None)
            fresh_id = self.fresh_id() if self.core.init_needs_id(command) else -1
            decision = self.core.init(command, (client, command), self.now_ms, fresh_id)
            for other, forgetting in self.core.surplus():
                self.carry_out(other, forgetting)
            self.ask(client, command, decision, at_once)
            if client.heard != ErrorCode.CONCURRENT_TRANSACTIONS:
                return

    @rule(
        who=WHO,
        queues=st.sets(st.sampled_from(QUEUES), max_size=2),
        groups=st.sets(st.sampled_from(GROUPS), max_size=1),
        at_once=AT_ONCE,
    )
    def add(self, who: int, queues: set[int], groups: set[str], at_once: bool) -> None:
        client = self.who(who)
        if client.waiting is not None or client.ending is not None or client.me is None or not queues | groups:
            return
        command = Add(client.transactional_id, client.me, queues, groups)
        self.ask(client, command, self.core.add(command, (client, command), self.now_ms), at_once)

    @rule(who=WHO, queue=st.sampled_from(QUEUES))
    def send(self, who: int, queue: int) -> None:
        """Batches are written at once: the worst case, because the facts about them lag behind. A client that did not
        wait for an answer is a wrong one, and may send too."""
        client = self.who(who)
        if client.me is not None and client.ending is None:
            error = self.core.verify(client.transactional_id, client.me, queue=queue)
            self.put(client, error, self.queues[queue])

    @rule(who=WHO, group=st.sampled_from(GROUPS))
    def send_offsets(self, who: int, group: str) -> None:
        """The same for offsets: they are pending in the group until the transaction ends."""
        client = self.who(who)
        if client.me is not None and client.ending is None:
            self.put(client, self.core.verify(client.transactional_id, client.me, group=group), self.groups[group])

    def put(self, client: Client, error: ErrorCode, place: Place) -> None:
        assert client.me is not None
        if error == OK:
            newest = max((one for one in self.given if one.producer_id == client.me.producer_id), key=lambda p: p.epoch)
            assert client.me.epoch == newest.epoch, "a fenced producer was let in"
            assert client.me.epoch >= place.epochs.get(client.me.producer_id, -1), "its queue has fenced it"
            self.count += 1
            place.open.setdefault(client.me.producer_id, []).append(self.count)
            place.epochs[client.me.producer_id] = client.me.epoch
            client.sent.add(self.count)

    @rule(who=WHO, queues=st.sets(st.sampled_from(QUEUES), min_size=1), commit=st.booleans(), at_once=AT_ONCE)
    def transaction(self, who: int, queues: set[int], commit: bool, at_once: bool) -> None:
        """As a client does it, without anything in between."""
        self.add(who, queues, set(GROUPS), True)
        for queue in queues:
            self.send(who, queue)
        for group in GROUPS:
            self.send_offsets(who, group)
        self.end(who, commit, at_once)

    @rule(who=WHO, queue=st.sampled_from(QUEUES), late=st.booleans())
    def slow_transaction(self, who: int, queue: int, late: bool) -> None:
        """A client sleeps through its time limit and goes on as if nothing had happened: nothing may count in part."""
        self.add(who, {queue}, set(), True)
        self.send(who, queue)
        self.time_passes(TIMEOUT_MS + 1)
        if late:
            self.settle()
        self.add(who, {queue}, set(), True)
        self.send(who, queue)
        self.end(who, True, True)

    @rule(who=WHO, commit=st.booleans(), at_once=AT_ONCE)
    def end(self, who: int, commit: bool, at_once: bool) -> None:
        client = self.who(who)
        if client.waiting is None and client.me is not None:
            again = client.ending
            self.ask_end(client, again or End(client.transactional_id, client.me, commit, client.modern), at_once)

    def ask_end(self, client: Client, command: End, at_once: bool) -> None:
        client.ending = command
        fresh_id = self.fresh_id() if self.core.end_needs_id(command) else -1
        self.ask(client, command, self.core.end(command, (client, command), self.now_ms, fresh_id), at_once)

    @rule(who=WHO, at_once=AT_ONCE)
    def lose_the_answer(self, who: int, at_once: bool) -> None:
        """A connection breaks: an EndTxn is asked again, with the epoch that the client knows."""
        client = self.who(who)
        command, client.waiting = client.waiting, None
        if isinstance(command, End):
            self.ask_end(client, command, at_once)

    def who(self, number: int) -> Client:
        """Counted from the youngest: most of the time somebody who is not fenced."""
        return self.alive[-1 - number % len(self.alive)]

    def fresh_id(self) -> int:
        self.next_id += 1
        return self.next_id

    # --------------------------------------------------------------------------------------------- what happens

    @rule(ms=st.sampled_from([1, 1_000, 1_000, 1_000, TIMEOUT_MS + 1, EXPIRATION_MS]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.looked_ms = self.now_ms
        for transactional_id, decision in self.core.advance(self.now_ms, self.now_ms):
            self.carry_out(transactional_id, decision)
        for transactional_id, decision in self.core.expire(self.now_ms):
            self.carry_out(transactional_id, decision)

    @rule(count=st.integers(1, 5))
    def store(self, count: int) -> None:
        for _ in range(min(count, len(self.under_way))):
            _, decision = self.under_way.popleft()
            for fact in decision.records:
                self.core.apply(fact)
                _, key, value = fact
                if value is None:
                    self.stored.pop(key, None)
                else:
                    self.stored[key] = value
            self.answer(decision)

    @rule(data=st.data())
    def write_a_marker(self, data: st.DataObject) -> None:
        """Of any ending, into any of its queues; when it was the last one is up to `finish`."""
        places = [(ending, queue) for ending in self.endings for queue in sorted(ending.queues)]
        if places:
            ending, queue = data.draw(st.sampled_from(places))
            assert ending.producer.epoch >= self.newest[ending.transactional_id].epoch or (
                ending.producer.producer_id != self.newest[ending.transactional_id].producer_id
            ), "a marker with an epoch below one that was given out ends nothing"
            self.queues[queue].mark(ending.producer, ending.commit)

    @rule()
    def finish(self) -> None:
        """The markers of one ending are all written (again)."""
        if self.endings:
            ending = self.endings.pop(0)
            for place in (*(self.queues[queue] for queue in ending.queues), *map(self.groups.get, ending.groups)):
                assert place is not None
                place.mark(ending.producer, ending.commit)
            self.carry_out(ending.transactional_id, self.core.written(ending, self.now_ms))

    def settle(self) -> None:
        for _ in range(6):
            self.store(10**6)
            while self.endings:
                self.finish()

    @rule()
    def crash(self) -> None:
        """The broker dies. Clients that waited get no answer; what is prepared goes on from the start."""
        self.under_way.clear()
        for client in self.alive:
            client.waiting = None
        self.core = self.loaded()
        self.endings = self.core.resume()
        self.looked_ms = 0  # what was too old may be open again

    @rule(transactional_id=st.sampled_from(IDS))
    def lose_a_write(self, transactional_id: str) -> None:
        """The journal refuses everything from here on; the id is put back to what is stored."""
        kept = deque(entry for entry in self.under_way if entry[0] != transactional_id)
        if len(kept) == len(self.under_way):
            return
        for at, decision in self.under_way:
            if at == transactional_id:
                for (client, command), _ in decision.responses:
                    if client.waiting is command:
                        client.waiting = None
        self.under_way = kept
        # An ending that runs stays: its fact is stored, and it is started again below. Markers are idempotent.
        self.endings = [ending for ending in self.endings if ending.transactional_id != transactional_id]
        self.carry_out(transactional_id, self.core.reload(transactional_id))
        self.looked_ms = 0

    @rule(transactional_id=st.sampled_from(IDS))
    def run_out_of_epochs(self, transactional_id: str) -> None:
        """As if 32,000 transactions had passed: the current producer knows its new epoch."""
        record = self.core.describe(transactional_id)
        idle = record is not None and record.state in IDLE
        if not idle or any(at == transactional_id for at, _ in self.under_way):
            return
        assert record is not None
        holder = self.given.get(Producer(record.producer_id, record.epoch))
        if holder is None or record.epoch >= EPOCH_LAST_GIVEN:
            return
        later = Producer(record.producer_id, EPOCH_LAST_GIVEN)
        self.given[later] = holder
        self.newest[transactional_id] = later
        holder.me = later
        rest = decode(put("", record)[2] or b"")
        changed = TransactionRecord(
            rest.producer_id, EPOCH_LAST_GIVEN, rest.state, rest.timeout_ms, rest.update_ms, rest.start_ms,
            EPOCH_LAST_GIVEN - 1, rest.previous_id,
        )  # fmt: skip
        fact = put(transactional_id, changed)
        self.core.apply(fact)
        self.stored[transactional_id.encode()] = fact[2] or b""
        self.core.reload(transactional_id)

    # ------------------------------------------------------------------------------------------------- the store

    def ask(self, client: Client, command: Any, decision: TransactionDecision, at_once: bool) -> None:
        client.waiting, client.heard = command, None
        self.carry_out(command.transactional_id, decision)
        if at_once:
            self.settle()

    def carry_out(self, transactional_id: str, decision: TransactionDecision) -> None:
        if decision.records or any(at == transactional_id for at, _ in self.under_way):
            self.under_way.append((transactional_id, decision))
        else:
            self.answer(decision)

    def answer(self, decision: TransactionDecision) -> None:
        self.endings += decision.effects
        for (client, command), answer in decision.responses:
            if client.waiting is command:
                client.waiting = None
                self.hear(client, command, answer)

    def hear(self, client: Client, command: Any, answer: Response) -> None:
        client.heard = answer.error
        if isinstance(command, End) and answer.error not in RETRIED:
            client.ending = None
        if answer.error in FINAL:
            client.sent.clear()
        if answer.error != OK:
            return
        if isinstance(command, Init):
            self.is_given(client, Producer(answer.producer_id, answer.epoch))
            client.sent.clear()
            client.ending = None
        elif isinstance(command, End):
            for batch in client.sent:
                assert self.told.setdefault(batch, command.commit) == command.commit
            client.sent.clear()
            if command.raises_epoch:
                self.is_given(client, Producer(answer.producer_id, answer.epoch))

    def is_given(self, client: Client, producer: Producer) -> None:
        assert self.given.setdefault(producer, client) is client, f"{producer} was given to two"
        before = self.newest.get(client.transactional_id)
        if before is not None and before.producer_id == producer.producer_id:
            assert producer.epoch >= before.epoch, f"{producer} was given after {before}"
        self.newest[client.transactional_id] = producer
        assert 0 <= producer.epoch <= EPOCH_LAST_GIVEN
        client.me = producer

    def loaded(self) -> Transactions:
        return Transactions.load(self.stored.items(), self.limits)

    # ----------------------------------------------------------------------------------------- what always holds

    @invariant()
    def replaying_gives_the_live_state(self) -> None:
        if not hasattr(self, "core"):
            return
        again = self.loaded()
        assert again._stored == self.core._stored
        moving = {transactional_id for transactional_id, _ in self.under_way}
        for transactional_id in IDS:
            if transactional_id not in moving:
                assert again._live.get(transactional_id) == self.core._live.get(transactional_id)
        assert self.core._open == {key for key, one in self.core._live.items() if one.state is State.ONGOING}
        assert self.core._idle.keys() == {key for key, one in self.core._live.items() if one.state in IDLE}

    @invariant()
    def nothing_hangs(self) -> None:
        """A queue with an open transaction is named in a stored fact that will lead a marker to it."""
        if not hasattr(self, "core"):
            return
        for name, place in (*self.queues.items(), *self.groups.items()):
            for producer_id in place.open:
                record = next(one for one in self.core._stored.values() if one.producer_id == producer_id)
                assert record.state is State.ONGOING or record.state in PREPARED
                assert name in record.queues or name in record.groups

    @invariant()
    def ends_are_whole_and_as_told(self) -> None:
        for batch, commit in getattr(self, "told", {}).items():
            places = (*self.queues.values(), *self.groups.values())
            ended = [place.ended[batch] for place in places if batch in place.ended]
            assert ended == [commit], f"batch {batch} was told to be {commit} and is {ended}"

    @invariant()
    def tools_see_every_id(self) -> None:
        if hasattr(self, "core"):
            listed = dict(self.core.listed(Filter(), self.now_ms))
            assert listed.keys() == self.core._live.keys()
            ongoing = self.core.listed(Filter(states=frozenset({State.ONGOING})), self.now_ms)
            assert {one for one, _ in ongoing} == self.core._open
            for one, record in listed.items():
                mine = dict(self.core.listed(Filter(producer_ids=frozenset({record.producer_id})), self.now_ms))
                assert list(mine) == [one], "a producer id has one transactional id"
                assert record.queues | record.groups == frozenset() or record.state not in IDLE

    @invariant()
    def no_transaction_outlives_its_time(self) -> None:
        """Once time was looked at, whatever is open is young enough."""
        for record in getattr(self, "core", Transactions(Limits()))._live.values():
            if record.state is State.ONGOING:
                assert record.start_ms + record.timeout_ms >= self.looked_ms

    def teardown(self) -> None:
        """Whatever was begun ends: nobody waits, nothing is open."""
        if not hasattr(self, "core"):
            return
        self.settle()
        self.time_passes(TIMEOUT_MS + 1)
        self.settle()
        assert not self.core._waiting
        assert all(client.waiting is None for client in self.alive)
        assert all(record.state in IDLE for record in self.core._live.values())
        assert not any(place.open for place in (*self.queues.values(), *self.groups.values()))


TestTransactions = Machine.TestCase
TestTransactions.settings = settings(max_examples=200, stateful_step_count=50)
