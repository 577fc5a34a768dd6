"""Who coordinates which group and transactional id: the slots in journals that this broker leads, and the others.

An id belongs to a slot, a slot lies in a journal, and whoever leads the journal coordinates the id. What a journal's
facts make is loaded when it is led, and dropped when it is not any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from cairnmq.broker.coordination.coordinator import Coordinator
from cairnmq.broker.coordination.journal_coordinator import Facts, JournalCoordinator, Surroundings, Topics
from cairnmq.broker.coordination.offset_purge import OffsetPurges
from cairnmq.broker.coordination.transaction_coordinator import EndOffsets, StoreMarkers, TransactionCoordinator
from cairnmq.broker.memory_budget import Tally
from cairnmq.codec.crc32c import crc32c
from cairnmq.errors import ErrorCode, Fault
from cairnmq.groups.groups import Listed
from cairnmq.groups.pending import EndLimit
from cairnmq.transactions.messages import Filter
from cairnmq.transactions.record import TransactionRecord

log = logging.getLogger("cairnmq.broker")

_WHY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "groups, offsets and transactions of this journal are being loaded",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "no broker coordinates this at the moment",
    ErrorCode.NOT_COORDINATOR: "another broker coordinates this",
}
_DAMAGED = "the journal that holds groups, offsets and transactions is damaged; see /health/ready"


class Place(NamedTuple):
    """A broker, and where clients find it."""

    node_id: int
    host: str
    port: int


class Places(Protocol):
    """Who leads which journal, as far as this broker knows."""

    def leader_of(self, journal: int) -> Place | None: ...


def _nobody_can() -> None:
    """Slots of a broker that is alone are made at its start."""


class Coordinators:
    """`want_slots`: called whenever somebody asks for a coordinator before there are slots. `may_serve`: whether no
    other broker can lead a journal by now (R18): a process that stood still would tell offsets that are old. None: no
    other broker ever can."""

    def __init__(
        self,
        topics: Topics,
        store: Facts,
        places: Places,
        purges: OffsetPurges,
        *,
        node_id: int,
        steady: Callable[[], int],
        wall: Callable[[], int],
        uuid: Callable[[], str],
        want_slots: Callable[[], None] = _nobody_can,
        may_serve: Callable[[int], bool] | None = None,
    ) -> None:
        self._around = Surroundings(topics, store, store.write_markers, self.end_offsets, steady, wall, uuid)
        self._places = places
        self._purges = purges
        self._node_id = node_id
        self._want_slots = want_slots
        self._may_serve = may_serve
        self._loaded: dict[int, JournalCoordinator] = {}
        self._damaged: set[int] = set()
        self._sole: JournalCoordinator | None = None  # has all slots: nothing needs to be looked up
        self._running = False
        self.slots_refused = ""  # why slots cannot be made, as far as anybody asked
        self.group_bytes = Tally(topics.config.cairn_group_bytes_max, self._held_bytes)

    # ------------------------------------------------------------------------------------------------------ journals

    def lead(self, journal: int, epoch: int, keyed: Mapping[tuple[str, bytes], bytes], unclean_epoch: int = 0) -> None:
        """This broker leads a journal with slots, and nothing of what it holds can be taken back: what its keyed facts
        say is served, and time counts for it. `unclean_epoch`: the last one whose leader may have lacked something."""
        self.drop(journal)
        topics = self._around.topics
        one = JournalCoordinator.load(journal, epoch, keyed, self._around, lambda: self._others(journal), unclean_epoch)
        self._loaded[journal] = one
        slots = topics.image.slots
        is_sole = slots is not None and set(slots.cycle) == {journal} and self._may_serve is None
        self._sole = one if is_sole else None
        self.group_bytes.count_again()
        self._purges.add(journal, one.purge)
        if self._running:
            one.purge.start(topics.topic_ids)
            one.start(topics)

    def end_through(self, write_markers: StoreMarkers, end_offsets: EndOffsets) -> None:
        """In a cluster queues and groups of transactions may be led elsewhere. Before anything is loaded."""
        assert not self._loaded, "what is loaded ends its transactions here"
        self._around = replace(self._around, write_markers=write_markers, end_offsets=end_offsets)

    def drop(self, journal: int) -> None:
        """It does not lead the journal any more: whoever waits looks for the coordinator again, and nothing that was
        not decided before is applied."""
        self._damaged.discard(journal)
        one = self._loaded.pop(journal, None)
        if one is not None:
            self._sole = None
            self._purges.drop(journal)
            one.drop()
            self.group_bytes.count_again()

    def damaged(self, journal: int) -> None:
        """What the journal held may be newer than what is known of it: nobody is told that."""
        self.drop(journal)
        self._damaged.add(journal)

    @property
    def loaded(self) -> Collection[JournalCoordinator]:
        return tuple(self._loaded.values())

    async def start(self) -> None:
        """Time counts for what is loaded, and from now on for what will be."""
        topics = self._around.topics
        for one in self.loaded:
            one.purge.start(topics.topic_ids)
        await asyncio.sleep(0)  # what it has to store stands before what clients bring
        self._running = True
        for one in self.loaded:
            one.start(topics)

    def drain(self) -> None:
        """The broker stops: parked joins and syncs are sent to look for a coordinator."""
        self._running = False
        for one in self.loaded:
            one.coordinator.drain()

    async def close(self) -> None:
        """What was decided is still stored. The ends of transactions need the groups of all journals."""
        self._running = False
        await asyncio.gather(*(one.transactions.close() for one in self.loaded))
        await asyncio.gather(*(one.coordinator.close() for one in self.loaded))
        for one in self.loaded:
            one.purge.close()

    def _others(self, journal: int) -> list[JournalCoordinator]:
        return [one for number, one in self._loaded.items() if number != journal]

    def _held_bytes(self) -> int:
        return sum(one.coordinator.groups.held_bytes() for one in self.loaded)

    # ------------------------------------------------------------------------------------------------- whose an id is

    def place(self, key: str) -> int | None:
        """The journal of a group's or transactional id's slot; None: there are no slots yet."""
        slots = self._around.topics.image.slots
        if slots is None:
            self._want_slots()
            return None
        return slots.of(crc32c(key.encode())).journal

    def of_group(self, group_id: str) -> Coordinator | ErrorCode:
        """15: nobody coordinates it; 16: another broker; 14: this one, once it is loaded."""
        one = self._sole or self._of(group_id)
        return one if isinstance(one, ErrorCode) else one.coordinator

    def of_transaction(self, transactional_id: str) -> TransactionCoordinator | ErrorCode:
        """The same."""
        one = self._sole or self._of(transactional_id)
        return one if isinstance(one, ErrorCode) else one.transactions

    def _of(self, key: str) -> JournalCoordinator | ErrorCode:
        journal = self.place(key)
        if journal is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self._may_serve is not None and journal in self._loaded and not self._may_serve(journal):
            return ErrorCode.NOT_COORDINATOR
        return self._loaded.get(journal) or self._missing(journal)

    def _missing(self, journal: int) -> ErrorCode:
        """Why nothing is loaded of a journal."""
        if journal in self._damaged:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        leader = self._places.leader_of(journal)
        is_own = leader is not None and leader.node_id == self._node_id
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_own else ErrorCode.NOT_COORDINATOR

    def find(self, key: str) -> Place | ErrorCode:
        """The broker that coordinates an id."""
        journal = self.place(key)
        if journal is None or journal in self._damaged:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self._places.leader_of(journal) or ErrorCode.COORDINATOR_NOT_AVAILABLE

    def tell_slots(self, refused: str) -> None:
        """Why slots cannot be made; empty once they are."""
        if refused and refused != self.slots_refused:
            log.warning("consumer groups and transactions cannot begin: %s", refused)
        self.slots_refused = refused

    def why(self, code: ErrorCode) -> str:
        """In words, for answers that have room for them."""
        if code is ErrorCode.COORDINATOR_NOT_AVAILABLE and self.slots_refused:
            return self.slots_refused
        if code is ErrorCode.COORDINATOR_NOT_AVAILABLE and self._damaged:
            return _DAMAGED
        return _WHY.get(code, code.name)

    # ----------------------------------------------------------------------------------------------------- all of them

    def groups(self) -> Iterator[Listed]:
        """Of the journals that this broker leads."""
        for one in self.loaded:
            yield from one.coordinator.groups.listed()

    def transactions(self, wanted: Filter, date_ms: int) -> Iterator[tuple[str, TransactionRecord]]:
        for one in self.loaded:
            yield from one.transactions.core.listed(wanted, date_ms)

    @property
    def incomplete(self) -> ErrorCode:
        """Why a list of what this broker coordinates may miss some of it; 0 if it does not."""
        slots = self._around.topics.image.slots
        for journal in () if slots is None else dict.fromkeys(slots.cycle):
            code = ErrorCode.NONE if journal in self._loaded else self._missing(journal)
            if code not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
                return code
        return ErrorCode.NONE

    async def end_offsets(
        self, group_ids: Iterable[str], producer_id: int, commit: bool, limit: EndLimit | None = None
    ) -> None:
        """Offsets of a transaction in groups of any journal; raises a Fault if some could not be ended. Waits for all,
        also if one fails: the next try would meet those that are still on their way."""
        by_coordinator: dict[Coordinator, list[str]] = {}
        for group_id in group_ids:
            coordinator = self.of_group(group_id)
            if isinstance(coordinator, ErrorCode):
                raise Fault(f"group {group_id}: {coordinator.name}: {self.why(coordinator)}")
            by_coordinator.setdefault(coordinator, []).append(group_id)
        ends = [each.end_offsets(ids, producer_id, commit, limit) for each, ids in by_coordinator.items()]
        for told in await asyncio.gather(*ends, return_exceptions=True):
            if told is not None:
                raise told
