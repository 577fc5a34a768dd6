"""The metadata of a cluster on the event loop: looked at now and then, told on, and the session kept alive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from cairnmq.broker.cluster.cluster_store import ClusterStore
from cairnmq.broker.live_catalog import LiveCatalog
from cairnmq.errors import Fault
from cairnmq.metadata.cluster_image import ClusterImage
from cairnmq.metadata.store import Away

log = logging.getLogger("cairnmq.broker")

T = TypeVar("T")

LOOK_SECONDS = 0.05
CATCH_UP_SECONDS = 0.5  # a store that is away keeps nobody waiting for longer

OnChange = Callable[[ClusterImage], None]


class MetadataLoop:
    """One per broker. `on_session_lost` registers again; it is called again and again until it does not raise.

    While the store is away the image stands still, and `away` says why."""

    def __init__(
        self,
        store: ClusterStore,
        catalog: LiveCatalog,
        on_session_lost: Callable[[], Awaitable[None]],
        *,
        clock: Callable[[], int],
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self.store = store
        self.away = ""
        self.away_since_ms = 0  # by `clock`; 0 while it is not
        self._catalog = catalog
        self._on_session_lost = on_session_lost
        self._clock = clock
        self._look_seconds = look_seconds
        self._callbacks: list[OnChange] = []
        self._told = self.cluster, catalog.image.slots
        self._renew_at_ms = 0
        self._task: asyncio.Task[None] | None = None
        self._folding = asyncio.Lock()
        self._wanted: asyncio.Task[None] | None = None  # a look that has not begun

    @property
    def cluster(self) -> ClusterImage:
        """The newest of which topics are in place."""
        assert self._catalog.cluster is not None, "the catalog of one node"
        return self._catalog.cluster

    @property
    def confirmed_ms(self) -> int:
        """By the clock of the sessions: when the last exchange began in which the store said that this broker is alive.
        For leases."""
        return self.store.confirmed_ms

    def on_change(self, callback: OnChange) -> None:
        """Called on the loop with each new image, when topics of the same changes are in place."""
        self._callbacks.append(callback)
        self._catalog.on_image = self._tell

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Look no more; the session is the caller's to end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._wanted is not None:
            self._wanted.cancel()
        async with self._folding:  # what has begun
            self._wanted = None

    async def call(self, work: Callable[[], T]) -> T:
        """Any blocking call on the metadata thread. What it changed is told before it returns. Not to be called while
        topics are being put in place (`Hosting`)."""
        done = await self._catalog.call(work)
        await self._catalog.adopt()
        self._tell()
        return done

    # ------------------------------------------------------------------------------------------------- looking

    async def _run(self) -> None:
        while True:
            try:
                await self._look()
            except Fault as fault:
                self._is_away(str(fault))
            except Exception:
                log.exception("metadata: a look at the store failed; trying again")
            await asyncio.sleep(self._look_seconds)

    async def _look(self) -> None:
        if self._clock() >= self._renew_at_ms:
            await self._renew()
        await self._fold()

    async def _fold(self) -> None:
        if await self._catalog.call(self.store.look):
            await self._catalog.refresh()
        else:
            await self._catalog.adopt()
        self._tell()

    async def catch_up(self) -> None:
        """What others have changed until now is known, unless the store is away. All who ask before a look begins share
        it."""
        if self._wanted is None:
            self._wanted = asyncio.get_running_loop().create_task(self._look_once())
        await asyncio.wait({self._wanted}, timeout=CATCH_UP_SECONDS)

    async def _look_once(self) -> None:
        async with self._folding:
            self._wanted = None
            with suppress(Fault):  # the loop says it
                await self._fold()

    async def _renew(self) -> None:
        begun_ms = self._clock()
        alive = await self.call(self.store.renew)
        if isinstance(alive, Away):
            self._is_away(alive.reason)
            return
        if not alive:
            log.warning("metadata: the session of this broker has ended; it registers again")
            await self._on_session_lost()
        self._renew_at_ms = begun_ms + self.store.pace_ms
        if self.away:
            log.info("metadata: the store responds again")
            self.away, self.away_since_ms = "", 0

    def _is_away(self, reason: str) -> None:
        """Said once. The session is tried again with the next look."""
        if not self.away:
            log.warning("metadata: the store is away; leaders keep serving, and nothing can be changed: %s", reason)
            self.away_since_ms = self._clock()
        self.away = reason
        self._renew_at_ms = 0

    def _tell(self) -> None:
        """Slots count too: they may lie in journals that were there before."""
        (before, slots_before), (image, slots) = self._told, (self.cluster, self._catalog.image.slots)
        if image is before and slots == slots_before:
            return
        self._told = image, slots
        for callback in self._callbacks:
            callback(image)
