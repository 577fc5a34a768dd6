"""The coordinator of groups on a leader with real storage: from when all of earlier epochs is durable until it is lost.

The cores and the order of facts and answers are those of the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Never

from cairnmq.broker.coordination.fact_log import Stored
from cairnmq.broker.coordination.ordered_writes import OrderedWrites
from cairnmq.broker.coordination.slot_keys import place_of
from cairnmq.decision import KeyedRecord
from cairnmq.errors import Fault, Refusal
from cairnmq.groups.messages import Response
from cairnmq.groups.offset_messages import OffsetErrors
from cairnmq.storage.files.format import Keyed
from cairnmq.storage.live.appends import Appends
from cairnmq.testing.fake_topics import FakeView
from cairnmq.testing.replicas.stored_replica import NOW, Life
from cairnmq.testing.sim_desk import loaded
from cairnmq.testing.sim_ledger import Ledger
from cairnmq.types import Slots

BROKER_FLUSH = "none"  # facts are durable all the same


class GroupDesk:
    """One leadership's. `later`: what the event loop would call soon."""

    def __init__(
        self, life: Life, slots: Slots, view: FakeView, ledger: Ledger, later: list[Callable[[], None]], now_ms: int
    ) -> None:
        assert life.leader is not None
        self.leader = life.leader
        self.ledger = ledger
        self._slots = slots
        self._later = later
        self._now_ms = now_ms
        self._is_closed = False
        self._appends = Appends(life.queues, {0: life.path})
        cores = loaded(life.keyed, self._put, slots, life.leader.epoch, 0)
        self.groups, self._facts = cores.groups, cores.facts
        self.groups.view = view
        self.group_writes: OrderedWrites[Response, Never] = OrderedWrites("group", self._facts, self._put_back)
        self.offset_writes: OrderedWrites[OffsetErrors, Never] = OrderedWrites("offsets of group", self._facts)
        ledger.recovered(self.groups._stored, lambda group: True)
        self.groups.resume(now_ms)

    def close(self) -> None:
        """Another broker leads: whatever is on its way may still come to count."""
        self._is_closed = True
        self._facts.drop()

    def _put(self, facts: Sequence[KeyedRecord], stored: Stored) -> None:
        slot = place_of(self._slots, *facts[0][:2])
        assert slot is not None
        for fact in facts:
            self.ledger.decided(fact)
        point = self._appends.put_keyed(slot, [Keyed(*fact) for fact in facts], BROKER_FLUSH, NOW)
        if isinstance(point, Refusal):
            self._later.append(partial(stored, Fault(point.message)))
        else:
            self._appends.when_certain(point, lambda met: stored(None if met else Fault("taken back")))

    def _put_back(self, group: str) -> None:
        if not self._is_closed:
            self.ledger.taken_back(group, self.groups._stored.get(group))
            self.group_writes.submit(group, self.groups.reload(group, self._now_ms))
