"""Asks other brokers about transactions: whoever leads the journal of a queue, group or transactional id.

A broker that cannot be asked is an error as if it had said that it does not lead: whoever asked looks again later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec.structs import replace

from cairnmq.broker.cluster.transaction_service import TransactionService, without_queue
from cairnmq.broker.internal.link import Link, LinkClosed, RequestFailed
from cairnmq.broker.leadership import NOBODY
from cairnmq.errors import ErrorCode
from cairnmq.groups.pending import EndLimit
from cairnmq.metadata.image import Image
from cairnmq.storage.api.serving import Marker
from cairnmq.transactions.guards import Guards
from cairnmq.wire.internal_transactions import (
    MARKERS_MAX,
    NAMES_BYTES_MAX,
    QUEUES_MAX,
    ControlRequest,
    ControlResponse,
    EndOffsets,
    Enter,
    Entered,
    JournalEnds,
    JournalMarkers,
    Marked,
    MarkerAsked,
    Markers,
    OffsetsEnd,
    OffsetsEnded,
)

if TYPE_CHECKING:
    from cairnmq.broker.coordination.coordinators import Coordinators
    from cairnmq.broker.leadership import Leadership
    from cairnmq.broker.storage_loop.store import Store

T = TypeVar("T")

WAIT_MS = 2_000  # then the other side says that it takes longer
FIRST_LINKS_SECONDS = 1.0  # the first who need links wait for them


class Slotted(Protocol):
    """The coordinators' registry, as far as places go."""

    def place(self, key: str) -> int | None: ...


class TransactionRoutes:
    """`links`: those for control, by broker. `needs_links`: whether any were ever needed; `want_links` is called when
    that becomes true, so a cluster without transactions has none."""

    def __init__(
        self,
        service: TransactionService,
        links: Mapping[int, Link],
        leadership: Leadership,
        slotted: Slotted,
        guards: Guards,
        image: Callable[[], Image],
        want_links: Callable[[], None],
    ) -> None:
        self.needs_links = False
        self.service = service
        self.guards = guards
        self._links = links
        self._leadership = leadership
        self._slotted = slotted
        self._image = image
        self._want_links = want_links
        self.asking: dict[int, asyncio.Task[None]] = {}  # by producer id: the last request that waits for an answer
        self._opened = asyncio.Event()
        self._patient_until = 0.0

    @classmethod
    def made(
        cls,
        store: Store,
        coordinators: Coordinators,
        leadership: Leadership,
        image: Callable[[], Image],
        *,
        links: Mapping[int, Link],
        want_links: Callable[[], None],
    ) -> TransactionRoutes:
        """With its service; ends of transactions go this way from now on."""
        guards = Guards()
        service = TransactionService(store, coordinators, leadership, guards, image)
        routes = cls(service, links, leadership, coordinators, guards, image, want_links)
        leadership.on_lost.add(guards.close_all)
        coordinators.end_through(routes.write_markers, routes.end_offsets)
        return routes

    def linked(self, broker: int, link: Link) -> None:
        """A link was opened."""
        self._opened.set()

    # --------------------------------------------------------------------------------------------------------- enter

    async def enter(self, asked: Enter) -> Entered:
        """The coordinator's answer. Many queues are asked about in several messages, one after the other."""
        journal = self._slotted.place(asked.transactional_id)
        broker = NOBODY if journal is None else self._leadership.view(journal).leader
        errors: list[int] = []
        answer = Entered(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        for queues in _pieces(asked.queues, QUEUES_MAX) or [[]]:
            told = await self._ask(broker, replace(asked, queues=queues, wait_ms=WAIT_MS))
            if not isinstance(told, Entered):
                return Entered(ErrorCode.NOT_COORDINATOR)
            if told.error:
                return told
            answer, errors = told, errors + told.errors
        return Entered(answer.error, answer.coordinator_epoch, errors)

    # ---------------------------------------------------------------------------------------------- ends by this broker

    async def write_markers(self, markers: Sequence[Marker]) -> list[ErrorCode]:
        """An error for each; markers of all queues that one broker leads go to it together."""
        codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * len(markers)
        by_broker: dict[int, dict[int, list[int]]] = {}
        image = self._image()
        for place, marker in enumerate(markers):
            found = image.find_queue(marker.queue_id)
            journal = None if found is None else found[0].journal_of(found[1])
            if journal is None:
                codes[place] = without_queue(image, marker.queue_id)
            else:
                by_broker.setdefault(self._leadership.view(journal).leader, {}).setdefault(journal, []).append(place)

        async def ask(broker: int, journals: dict[int, list[int]]) -> None:
            for some in _messages(journals, lambda _: 1, MARKERS_MAX):
                asked = [
                    JournalMarkers(journal, self._epoch(broker, journal), [_asked(markers[each]) for each in places])
                    for journal, places in some.items()
                ]
                told = await self._ask(broker, Markers(WAIT_MS, asked))
                _note(codes, some, told.errors if isinstance(told, Marked) else None)

        await asyncio.gather(*(ask(broker, journals) for broker, journals in by_broker.items() if broker != NOBODY))
        return codes

    async def end_offsets(
        self, groups: Sequence[str], producer_id: int, commit: bool, limit: EndLimit
    ) -> list[ErrorCode]:
        """An error for each; those of all groups that one broker coordinates go to it together."""
        codes = [ErrorCode.NOT_COORDINATOR] * len(groups)
        by_broker: dict[int, dict[int, list[int]]] = {}
        for place, group in enumerate(groups):
            journal = self._slotted.place(group)
            if journal is not None:
                by_broker.setdefault(self._leadership.view(journal).leader, {}).setdefault(journal, []).append(place)

        def end(group: str) -> OffsetsEnd:
            return OffsetsEnd(group, producer_id, limit.producer_epoch, commit, limit.raised, limit.coordinator_epoch)

        async def ask(broker: int, journals: dict[int, list[int]]) -> None:
            for some in _messages(journals, lambda place: len(groups[place].encode()) + 64, NAMES_BYTES_MAX):
                asked = [
                    JournalEnds(journal, self._epoch(broker, journal), [end(groups[each]) for each in places])
                    for journal, places in some.items()
                ]
                told = await self._ask(broker, EndOffsets(WAIT_MS, asked))
                _note(codes, some, told.errors if isinstance(told, OffsetsEnded) else None)

        await asyncio.gather(*(ask(broker, journals) for broker, journals in by_broker.items() if broker != NOBODY))
        return codes

    # ------------------------------------------------------------------------------------------------------ messages

    def _epoch(self, broker: int, journal: int) -> int:
        """In which a broker leads a journal, as far as is known here."""
        view = self._leadership.view(journal)
        return max(view.epoch, 0) if view.leader == broker else 0

    async def _ask(self, broker: int, request: ControlRequest) -> ControlResponse | None:
        """None: there is no link to it, or it could not answer."""
        if broker == self._leadership.node:
            return await self.service.answer(request)
        await self._first_link(broker)
        link = self._links.get(broker)
        if link is None:
            return None
        try:
            return await link.ask(request)
        except (LinkClosed, RequestFailed):
            return None

    async def _first_link(self, broker: int) -> None:
        """Whoever needs links first has none yet."""
        if broker == NOBODY or broker in self._links:
            return
        now = asyncio.get_running_loop().time
        if not self.needs_links:
            self.needs_links = True
            self._patient_until = now() + FIRST_LINKS_SECONDS
            self._want_links()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._patient_until):
                while broker not in self._links and now() < self._patient_until:
                    self._opened.clear()
                    await self._opened.wait()


def _pieces(several: Sequence[T], most: int) -> list[list[T]]:
    return [list(several[at : at + most]) for at in range(0, len(several), most)]


def _messages(
    journals: Mapping[int, Iterable[int]], weight: Callable[[int], int], most: int
) -> Iterator[dict[int, list[int]]]:
    """Places by journal, in pieces of which each is no heavier than a message may be."""
    piece: dict[int, list[int]] = {}
    weighs = 0
    for journal, places in journals.items():
        for place in places:
            if piece and weighs + weight(place) > most:
                yield piece
                piece, weighs = {}, 0
            piece.setdefault(journal, []).append(place)
            weighs += weight(place)
    if piece:
        yield piece


def _note(codes: list[ErrorCode], asked: Mapping[int, Sequence[int]], errors: Sequence[int] | None) -> None:
    """What was told of these places; without an answer they stay what they were."""
    places = [place for several in asked.values() for place in several]
    if errors is not None and len(errors) == len(places):
        for place, error in zip(places, errors, strict=True):
            codes[place] = ErrorCode(error)


def _asked(marker: Marker) -> MarkerAsked:
    return MarkerAsked(
        marker.queue_id,
        marker.producer_id,
        marker.producer_epoch,
        marker.commit,
        marker.coordinator_epoch,
        marker.transaction_version,
    )
