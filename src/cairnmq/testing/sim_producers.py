"""Transactional producers for the simulator, as the coordinator meets them: they know only what they were answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cairnmq.errors import ErrorCode
from cairnmq.testing.sim_ledger import Ledger
from cairnmq.transactions.messages import Add, End, Init, Producer, Response, TransactionDecision
from cairnmq.transactions.transactions import Transactions

TIMEOUT_MS = 2_000
OK = ErrorCode.NONE
AGAIN = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR)  # the same request, later


class TransactionalProducer:
    """One instance of a transactional id. `modern`: transaction version 2, an epoch for each transaction."""

    def __init__(self, transactional_id: str, modern: bool, numbers: Iterator[int]) -> None:
        """`numbers`: of transactions; no two have the same, and later ones have higher."""
        self.transactional_id = transactional_id
        self.modern = modern
        self.me: Producer | None = None
        self.numbers = numbers
        self.transaction = next(numbers)
        self.queues: set[int] = set()  # added to the open transaction
        self.in_group = False  # its group was added, as it was told
        self.begun = False
        self.ending: End | None = None  # what it asks for until it knows the result
        self.waiting = False
        self._asked = 0

    # -------------------------------------------------------------------------------------------------- requests

    def init(self, core: Transactions, now_ms: int, fresh_id: int) -> TransactionDecision:
        command = Init(self.transactional_id, TIMEOUT_MS, None)
        return core.init(command, self._ticket(self._initialized), now_ms, fresh_id)

    def add(self, core: Transactions, now_ms: int, queues: Sequence[int], groups: Sequence[str]) -> TransactionDecision:
        assert self.me is not None
        self.begun = True
        self.queues.update(queues)

        def added(answer: Response) -> None:
            if answer.error == OK:
                self.in_group = self.in_group or bool(groups)
            elif answer.error not in AGAIN:
                self.out()

        return core.add(Add(self.transactional_id, self.me, queues, groups), self._ticket(added), now_ms)

    def end(self, core: Transactions, now_ms: int, commit: bool, ledger: Ledger) -> TransactionDecision:
        assert self.me is not None
        command = self.ending = self.ending or End(self.transactional_id, self.me, commit, self.modern)
        transaction = self.transaction

        def ended(answer: Response) -> None:
            if answer.error in AGAIN:
                return
            if answer.error != OK:
                self.out()
                return
            ledger.ended[transaction] = command.commit
            if command.raises_epoch:
                self.me = Producer(answer.producer_id, answer.epoch)
            self._next()

        return core.end(command, self._ticket(ended), now_ms, -1)

    def _initialized(self, answer: Response) -> None:
        if answer.error == OK:
            self.me = Producer(answer.producer_id, answer.epoch)
            self._next()

    def _next(self) -> None:
        self.transaction = next(self.numbers)
        self.queues, self.in_group, self.begun, self.ending = set(), False, False, None

    def out(self) -> None:
        """It is fenced, or its transaction is gone: it must begin anew. How the transaction ends it never hears."""
        self.me = None
        self._next()

    def forget(self) -> None:
        """The broker went away: no answer will come."""
        self._asked += 1
        self.waiting = False

    def _ticket(self, hear: Callable[[Response], None]) -> Callable[[Response | None], None]:
        self._asked += 1
        self.waiting = True
        asked = self._asked

        def deliver(answer: Response | None) -> None:
            if asked == self._asked:
                self.waiting = False
                if answer is not None:
                    hear(answer)

        return deliver
