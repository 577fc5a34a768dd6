"""Every transactional id of this broker. Pure: commands and the time in, decisions out. The time is that of a steady
clock, which begins anew with every run; dates are made with `wall_ahead_ms`.

`apply` is the only way into what is stored, and `load` of that gives the same ids again. An id whose facts could not be
stored is put back to what was (`reload`), as if the broker had restarted for this one id. States and who may do what in
each: docs/transactions.md.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from cairnmq.decision import Decision, KeyedRecord, Ticket
from cairnmq.errors import ErrorCode
from cairnmq.transactions import record as stored_form
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
from cairnmq.transactions.record import (
    EPOCH_LAST_GIVEN,
    EPOCH_MAX,
    IDLE,
    NEXT,
    NO_EPOCH,
    NO_ID,
    PREPARED,
    State,
    TransactionRecord,
)

_OK, _FENCED, _BUSY = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS
_WRONG_STATE, _UNMAPPED = ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING
_FORGOTTEN_AT_ONCE = 2  # for each new id: a limit that was lowered is reached in steps


class Transactions:
    """`epoch`: of the broker. `lost_epoch`: the one under which a loss was accepted last. Whatever was known of a
    producer id that was given out before may be older than what its producers were told: so all of them are fenced,
    what they had open is aborted (some of its records may be lost), and the next one gets an id that nobody had."""

    def __init__(self, limits: Limits, *, epoch: int = 0, lost_epoch: int = -1) -> None:
        self.limits = limits
        self._epoch = epoch
        self._lost_epoch = lost_epoch
        self.wall_ahead_ms = 0  # how far the wall clock is ahead of the steady one
        self._stored: dict[str, TransactionRecord] = {}
        self._live: dict[str, TransactionRecord] = {}
        self._open: set[str] = set()  # ids with an ongoing transaction: those that time can end
        self._began: dict[str, int] = {}  # when the last transaction of this run began
        self._looked_first_ms: int | None = None
        self._idle: OrderedDict[str, None] = OrderedDict()  # ids without one, unused longest first; its ends cost O(1)
        self.ids, self.idle = self._live.keys(), self._idle.keys()
        self._waiting: dict[str, list[Ticket]] = {}  # EndTxn requests that are answered when the markers are written

    # ------------------------------------------------------------------------------------------------- stored form

    @classmethod
    def load(
        cls, stored: Iterable[tuple[bytes, bytes]], limits: Limits, *, epoch: int = 0, lost_epoch: int = -1
    ) -> Transactions:
        transactions = cls(limits, epoch=epoch, lost_epoch=lost_epoch)
        for key, value in stored:
            transactions.apply((stored_form.SPACE, key, value))
        for transactional_id, record in sorted(transactions._stored.items(), key=lambda item: item[1].update_ms):
            transactions._set(transactional_id, record)
        return transactions

    def apply(self, fact: KeyedRecord) -> None:
        space, key, value = fact
        assert space == stored_form.SPACE, f"a fact of {space!r} is not about transactions"
        if value is None:
            self._stored.pop(key.decode(), None)
        else:
            self._stored[key.decode()] = stored_form.decode(value)

    def resume(self) -> list[WriteMarkers]:
        """After a load: transactions whose result is stored, and whose markers may not be written."""
        return [
            _markers(transactional_id, one) for transactional_id, one in self._live.items() if one.state in PREPARED
        ]

    def reload(self, transactional_id: str) -> TransactionDecision:
        """Back to what is stored. Whoever waits for an end is sent to find the coordinator again."""
        out: TransactionDecision = Decision()
        for ticket in self._waiting.pop(transactional_id, ()):
            out.respond(ticket, Response(ErrorCode.NOT_COORDINATOR))
        record = self._stored.get(transactional_id)
        if record is None:
            self._remove(transactional_id)
        else:
            self._set(transactional_id, record)
            if record.state in PREPARED:
                out.effects.append(_markers(transactional_id, record))
        return out

    def _set(self, transactional_id: str, record: TransactionRecord) -> None:
        self._live[transactional_id] = record
        if record.state is State.ONGOING:
            self._open.add(transactional_id)
        else:
            self._open.discard(transactional_id)
        self._idle.pop(transactional_id, None)
        if record.state in IDLE:
            self._idle[transactional_id] = None

    def _remove(self, transactional_id: str) -> None:
        self._live.pop(transactional_id, None)
        self._open.discard(transactional_id)
        self._began.pop(transactional_id, None)
        self._idle.pop(transactional_id, None)

    def _forget(self, transactional_id: str) -> tuple[str, TransactionDecision]:
        """The producer id that it had is never used again."""
        out: TransactionDecision = Decision()
        self._remove(transactional_id)
        out.records.append(stored_form.drop(transactional_id))
        return transactional_id, out

    def _date_ms(self, now_ms: int) -> int:
        return now_ms + self.wall_ahead_ms

    def _change(self, transactional_id: str, record: TransactionRecord, out: TransactionDecision) -> None:
        before = self._live.get(transactional_id)
        follows = record.state is State.EMPTY if before is None else record.state in NEXT[before.state]
        assert follows, f"a transaction cannot go from {before and before.state} to {record.state}"
        self._set(transactional_id, record)
        out.records.append(stored_form.put(transactional_id, record))

    # --------------------------------------------------------------------------------------------------- producers

    def init_needs_id(self, command: Init) -> bool:
        """Whether `init` wants a producer id that nobody has."""
        record = self._live.get(command.transactional_id)
        return record is None or (record.state in IDLE and self._needs_id(record))

    def _needs_id(self, record: TransactionRecord) -> bool:
        return record.exhausted or self._is_uncertain(record)

    def _is_uncertain(self, record: TransactionRecord) -> bool:
        """Later epochs of its producer id may have been given out, which are lost."""
        return record.since <= self._lost_epoch

    def _stranger(self, record: TransactionRecord | None, producer: Producer) -> ErrorCode:
        """Why somebody is not the current producer of an id."""
        if record is None or record.producer_id != producer.producer_id:
            return _UNMAPPED
        return _OK if record.epoch == producer.epoch and not self._is_uncertain(record) else _FENCED

    def init(self, command: Init, ticket: Ticket, now_ms: int, fresh_id: int) -> TransactionDecision:
        """`fresh_id`: a producer id that nobody has, or -1 if none was needed when that was asked. A new id may be one
        too many: see `surplus`."""
        out: TransactionDecision = Decision()
        if not command.transactional_id:
            return _respond(out, ticket, ErrorCode.INVALID_REQUEST)
        if not 0 < command.timeout_ms <= self.limits.timeout_max_ms:
            return _respond(out, ticket, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        record = self._live.get(command.transactional_id)
        if record is None:
            others = self.limits.elsewhere()
            if len(self._live) + others.known >= self.limits.ids_max and not self._idle and not others.idle:
                return _respond(out, ticket, ErrorCode.POLICY_VIOLATION)
            if fresh_id == NO_ID:
                return _respond(out, ticket, _BUSY)
            record = TransactionRecord(
                fresh_id, NO_EPOCH, State.EMPTY, command.timeout_ms, self._date_ms(now_ms), since=self._epoch
            )
        if record.state in PREPARED:
            return _respond(out, ticket, _BUSY if _may_go_on(record, command.known) else _FENCED)
        if not _may_go_on(record, command.known):
            return _respond(out, ticket, _FENCED)
        if record.state is State.ONGOING:
            if command.known is not None and command.known.epoch != record.epoch:
                return _respond(out, ticket, _FENCED)  # Kafka aborts first and finds out afterwards
            self._fence(command.transactional_id, record, now_ms, out)
            return _respond(out, ticket, _BUSY)
        changed = self._raised(record, command, now_ms, fresh_id)
        if isinstance(changed, ErrorCode):
            return _respond(out, ticket, changed)
        self._change(command.transactional_id, changed, out)
        out.respond(ticket, Response(_OK, changed.producer_id, changed.epoch))
        return out

    def _raised(
        self, record: TransactionRecord, command: Init, now_ms: int, fresh_id: int
    ) -> TransactionRecord | ErrorCode:
        """An idle record with a higher epoch; the same one for a producer that did not get the answer."""
        known_epoch = None if command.known is None else command.known.epoch
        fresh = replace(
            record,
            state=State.EMPTY,
            timeout_ms=command.timeout_ms,
            update_ms=self._date_ms(now_ms),
            start_ms=-1,
            previous_id=record.producer_id,
        )
        if known_epoch is not None and known_epoch != record.epoch and record.epoch != NO_EPOCH:
            # A new instance sets the epoch before to -1, so nobody who was fenced gets here.
            is_repeated = known_epoch == record.last_epoch and not self._is_uncertain(record)
            return replace(fresh, previous_id=record.previous_id) if is_repeated else _FENCED
        last_epoch = NO_EPOCH if known_epoch is None else record.epoch
        if self._needs_id(record):
            if fresh_id == NO_ID:
                return _BUSY
            return replace(fresh, producer_id=fresh_id, epoch=0, last_epoch=last_epoch, since=self._epoch)
        return replace(fresh, epoch=record.epoch + 1, last_epoch=last_epoch)

    def _fence(self, transactional_id: str, record: TransactionRecord, now_ms: int, out: TransactionDecision) -> None:
        """Aborts with an epoch above every one that was given out; that of version 2 is raised as by an EndTxn."""
        epoch, last_epoch = min(record.epoch + 1, EPOCH_MAX), NO_EPOCH
        if self._is_uncertain(record):
            epoch = EPOCH_MAX
        elif self.limits.raises_epochs:
            epoch, last_epoch = min(epoch + 1, EPOCH_MAX), epoch
        self._prepare(
            transactional_id, replace(record, epoch=epoch, last_epoch=last_epoch, raised=True), False, now_ms, out
        )

    # ------------------------------------------------------------------------------------------------ transactions

    def add(self, command: Add, ticket: Ticket, now_ms: int) -> TransactionDecision:
        """Queues and groups into the transaction, which begins with the first of them."""
        out: TransactionDecision = Decision()
        record = self._live.get(command.transactional_id)
        error = self._stranger(record, command.producer)
        if error or record is None:
            return _respond(out, ticket, error)
        if record.state in PREPARED:
            return _respond(out, ticket, _BUSY)
        queues, groups = record.queues.union(command.queues), record.groups.union(command.groups)
        if len(groups) > self.limits.groups_max:
            return _respond(out, ticket, ErrorCode.POLICY_VIOLATION)
        if record.state is not State.ONGOING:
            began = replace(
                record,
                state=State.ONGOING,
                start_ms=self._date_ms(now_ms),
                update_ms=self._date_ms(now_ms),
                previous_id=record.producer_id,
                queues=queues,
                groups=groups,
            )
            self._change(command.transactional_id, began, out)
            self._began[command.transactional_id] = now_ms
        elif len(queues) + len(groups) > len(record.queues) + len(record.groups):
            grown = replace(record, update_ms=self._date_ms(now_ms), queues=queues, groups=groups)
            self._change(command.transactional_id, grown, out)
        return _respond(out, ticket, _OK)

    def verify(
        self, transactional_id: str, producer: Producer, *, queue: int | None = None, group: str | None = None
    ) -> ErrorCode:
        """Whether something may be written into the transaction now, here. What is not stored yet does not count."""
        live, stored = self._live.get(transactional_id), self._stored.get(transactional_id)
        error = self._stranger(live, producer)
        if error or live is None:
            return error
        if live.state in PREPARED:
            return _BUSY
        if (
            live.state is not State.ONGOING
            or stored is None
            or stored.state is not State.ONGOING
            or (stored.producer_id, stored.epoch) != (producer.producer_id, producer.epoch)
        ):
            return _WRONG_STATE
        known = stored.groups if queue is None else stored.queues
        return _OK if (group if queue is None else queue) in known else _WRONG_STATE

    def end_needs_id(self, command: End) -> bool:
        """Whether `end` wants a producer id that nobody has."""
        record = self._live.get(command.transactional_id)
        return record is not None and command.raises_epoch and record.state not in PREPARED and record.exhausted

    def end(self, command: End, ticket: Ticket, now_ms: int, fresh_id: int) -> TransactionDecision:
        """EndTxn. Whoever ends a transaction is answered when its markers are written (`written`)."""
        out: TransactionDecision = Decision()
        if not command.transactional_id:
            return _respond(out, ticket, ErrorCode.INVALID_REQUEST)
        record = self._live.get(command.transactional_id)
        if record is None:
            return _respond(out, ticket, _UNMAPPED)
        is_retry = command.raises_epoch and _is_retry(record, command.producer)
        if not is_retry:
            error = self._stranger(record, command.producer)
            if error:
                return _respond(out, ticket, error)
            if command.raises_epoch and record.state in PREPARED:
                # The epoch was raised when the end was prepared: nobody can have this one yet.
                return _respond(out, ticket, _FENCED)
        if record.state is State.ONGOING:
            self._end(record, command, ticket, now_ms, fresh_id, out)
            return out
        same = record.state in (
            (State.PREPARE_COMMIT, State.COMPLETE_COMMIT) if command.commit
            else (State.PREPARE_ABORT, State.COMPLETE_ABORT)
        )  # fmt: skip
        if record.state in PREPARED:
            return _respond(out, ticket, _BUSY if same else _WRONG_STATE)
        if command.raises_epoch and not is_retry:
            if command.commit:
                return _respond(out, ticket, _WRONG_STATE)
            # Nothing was added, as far as we know. The epoch is raised all the same: what may be under way is fenced.
            self._end(replace(record, start_ms=self._date_ms(now_ms)), command, ticket, now_ms, fresh_id, out)
        elif same:
            out.respond(ticket, Response(_OK, record.producer_id, record.epoch))
        else:
            _respond(out, ticket, _WRONG_STATE)
        return out

    def _end(
        self,
        record: TransactionRecord,
        command: End,
        ticket: Ticket,
        now_ms: int,
        fresh_id: int,
        out: TransactionDecision,
    ) -> None:
        if command.raises_epoch:
            if record.exhausted and fresh_id == NO_ID:
                _respond(out, ticket, _BUSY)
                return
            record = replace(
                record,
                epoch=min(record.epoch + 1, EPOCH_MAX),
                last_epoch=record.epoch,
                next_id=fresh_id if record.exhausted else NO_ID,
                since=self._epoch if record.exhausted else record.since,
                raised=True,
            )
        self._prepare(command.transactional_id, record, command.commit, now_ms, out)
        prepared = self._live[command.transactional_id]
        if prepared.state in PREPARED:
            self._waiting.setdefault(command.transactional_id, []).append(ticket)
        else:
            out.respond(ticket, Response(_OK, prepared.producer_id, prepared.epoch))

    def _prepare(
        self, transactional_id: str, record: TransactionRecord, commit: bool, now_ms: int, out: TransactionDecision
    ) -> None:
        prepared = replace(
            record,
            state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
            update_ms=self._date_ms(now_ms),
            previous_id=record.producer_id,
        )
        if not prepared.queues and not prepared.groups:
            self._change(
                transactional_id, _completed(prepared, self._date_ms(now_ms)), out
            )  # there is nothing to write in between
            return
        self._change(transactional_id, prepared, out)
        out.effects.append(_markers(transactional_id, prepared))

    def written(self, markers: WriteMarkers, now_ms: int) -> TransactionDecision:
        """Every marker of a prepared transaction is durable: it is complete, and who waits for that is answered."""
        out: TransactionDecision = Decision()
        record = self._live.get(markers.transactional_id)
        if record is None or record.state not in PREPARED or _markers(markers.transactional_id, record) != markers:
            return out
        completed = _completed(record, self._date_ms(now_ms))
        self._change(markers.transactional_id, completed, out)
        for ticket in self._waiting.pop(markers.transactional_id, ()):
            out.respond(ticket, Response(_OK, completed.producer_id, completed.epoch))
        return out

    # -------------------------------------------------------------------------------------------------------- time

    def advance(self, now_ms: int, date_ms: int) -> Iterator[tuple[str, TransactionDecision]]:
        """Transactions that were open for too long are aborted. For how long those had been open that were open at the
        start, only dates can tell; 0 is a date that says nothing, and then their time runs from the first look on."""
        if self._looked_first_ms is None:
            self._looked_first_ms = now_ms
        for transactional_id in list(self._open):
            record = self._live[transactional_id]
            began_ms = self._began.get(transactional_id)
            over = (self._looked_first_ms if began_ms is None else began_ms) + record.timeout_ms < now_ms
            over = over or self._is_uncertain(record)  # nobody can end it
            if over or (began_ms is None and record.start_ms + record.timeout_ms < date_ms):
                out: TransactionDecision = Decision()
                self._fence(transactional_id, record, now_ms, out)
                yield transactional_id, out

    def expire(self, date_ms: int) -> Iterator[tuple[str, TransactionDecision]]:
        """Ids that nobody has used for long are forgotten."""
        for transactional_id in list(self._idle):
            if self._live[transactional_id].update_ms + self.limits.expiration_ms <= date_ms:
                yield self._forget(transactional_id)

    def surplus(self) -> Iterator[tuple[str, TransactionDecision]]:
        """After `init`: ids beyond the limit are forgotten, unused longest first, and never the last one used."""
        room = self.limits.ids_max - self.limits.elsewhere().known
        for _ in range(_FORGOTTEN_AT_ONCE):
            if len(self._live) > room and len(self._idle) > 1:
                yield self._forget(next(iter(self._idle)))

    # ------------------------------------------------------------------------------------------------------- admin

    def describe(self, transactional_id: str) -> TransactionRecord | None:
        return self._live.get(transactional_id)

    def listed(self, wanted: Filter, date_ms: int) -> Iterator[tuple[str, TransactionRecord]]:
        for transactional_id, record in self._live.items():
            if (
                (not wanted.producer_ids or record.producer_id in wanted.producer_ids)
                and (wanted.states is None or record.state in wanted.states)
                and (wanted.duration_ms < 0 or date_ms - record.start_ms > wanted.duration_ms)
            ):
                yield transactional_id, record


def _respond(out: TransactionDecision, ticket: Ticket, error: ErrorCode) -> TransactionDecision:
    out.respond(ticket, Response(error))
    return out


def _may_go_on(record: TransactionRecord, known: Producer | None) -> bool:
    """Whether the producer id is one with which a producer may ask for the next epoch: the current one, or the one
    before, which ran out of epochs, if the answer with the current one was lost."""
    return (
        known is None
        or record.epoch == NO_EPOCH
        or known.producer_id == record.producer_id
        or (known.producer_id == record.previous_id and known.epoch >= EPOCH_LAST_GIVEN)
    )


def _is_retry(record: TransactionRecord, producer: Producer) -> bool:
    """Whether this producer ended the last transaction (version 2) and asks again, not knowing its new epoch."""
    if record.state is State.ONGOING or record.state is State.EMPTY or record.last_epoch != producer.epoch:
        return False
    if record.producer_id == producer.producer_id:
        return record.epoch == producer.epoch + 1
    return record.previous_id == producer.producer_id and record.epoch == 0 and producer.epoch == EPOCH_LAST_GIVEN


def _completed(prepared: TransactionRecord, date_ms: int) -> TransactionRecord:
    renewed = prepared.next_id != NO_ID
    return replace(
        prepared,
        state=State.COMPLETE_COMMIT if prepared.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT,
        producer_id=prepared.next_id if renewed else prepared.producer_id,
        epoch=0 if renewed else prepared.epoch,
        previous_id=prepared.producer_id,
        next_id=NO_ID,
        update_ms=date_ms,
        raised=False,
        queues=frozenset(),
        groups=frozenset(),
    )


def _markers(transactional_id: str, record: TransactionRecord) -> WriteMarkers:
    return WriteMarkers(
        transactional_id,
        Producer(record.producer_id, record.epoch),
        record.state is State.PREPARE_COMMIT,
        record.raised,
        record.queues,
        record.groups,
    )
