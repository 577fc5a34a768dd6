"""Takes over journals whose next bytes are gone on their leaders: one after another, then the broker starts again.

What is taken over lies beside what is served, and a start puts it in place. So a broker that dies meanwhile has lost
nothing but the time; it begins anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from cairnmq.broker.cluster.install_steps import InstallSteps
from cairnmq.broker.cluster.journal_copying import JournalCopying
from cairnmq.broker.internal.link import Link, LinkClosed, RequestFailed
from cairnmq.broker.internal.received import Installed
from cairnmq.errors import Fault
from cairnmq.os_errors import text_of
from cairnmq.replication.records import JournalRecord, Member
from cairnmq.replication.throttle import Throttle
from cairnmq.storage.api.installing import StagedInstall, remove_install
from cairnmq.wire.internal import InstallAsk

if TYPE_CHECKING:
    from cairnmq.broker.storage_loop.store import Store

T = TypeVar("T")

log = logging.getLogger("cairnmq.broker")

PATIENCE_SECONDS = 60.0  # with the leader, which may be throttled, or wait for a checkpoint
LINK_SECONDS = 20.0
ROOM_SEGMENTS = 2  # of journals: what an install leaves free on the read disk
LOOK_SECONDS = 0.1
RETRY_SECONDS = 2.0  # after the first failure; then twice as long each time, up to:
RETRY_SECONDS_MAX = 64.0
TOLD_SECONDS = 10.0
TOGETHER_SECONDS = 60.0  # that one which is whole waits for others; its leader holds the journal for longer


class Wanted(Struct):
    """A replica, and whom it follows. `beyond`: what it takes over has to be of behind this position. `due`: by the
    loop's clock."""

    copying: JournalCopying
    me: Member
    epoch: int
    leader: int
    beyond: int = -1
    due: float = 0.0
    pause: float = RETRY_SECONDS


class Installer:
    """`rate`: bytes per second. Journals that are whole within a short time share one start. As long as anything of an
    install is on the disk, its replica follows and leads nothing: what it took meanwhile would be lost with the next
    start."""

    def __init__(
        self,
        store: Store,
        *,
        link_to: Callable[[int], Link | None],
        must_restart: Callable[[], None],
        rate: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._link_to = link_to
        self._must_restart = must_restart
        self._rate = rate
        self._now_ms = now_ms
        self._wanted: dict[int, Wanted] = {}
        self._task: asyncio.Task[None] | None = None
        self._current: int | None = None  # the journal that is taken over now, or next
        self._is_pausing = False
        self._throttle = Throttle()
        self._whole: dict[int, StagedInstall] = {}
        self._restart: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.steps: InstallSteps | None = None
        self.bytes_taken = 0

    @property
    def leaders(self) -> set[int]:
        """Brokers to which links are needed."""
        return {wanted.leader for wanted in self._wanted.values()}

    def shares(self) -> dict[int, float]:
        """Of each journal that is wanted, how much is there: 0 to 1."""
        current = self._current if self.steps is not None else None
        return {
            number: 1.0 if number in self._whole else self.steps.share if self.steps and number == current else 0.0
            for number in self._wanted
        }

    def want(self, copying: JournalCopying, me: Member, record: JournalRecord, beyond: int = -1) -> None:
        """Until it is done, or `end`."""
        assert record.leader is not None
        self._wanted[copying.number] = Wanted(copying, me, record.epoch, record.leader.broker, beyond)
        copying.state.installing = "waiting to be taken over from its leader"
        if self._task is not None and self._is_pausing:
            self._task.cancel()  # this one need not wait for the other
        self._go_on()

    def _go_on(self) -> None:
        if self._task is not None or self._is_closed:
            return
        waiting = [each for number, each in self._wanted.items() if number not in self._whole]
        if waiting:
            wanted = min(waiting, key=lambda each: each.due)  # one that failed does not keep the others
            self._current = wanted.copying.number
            self._task = asyncio.get_running_loop().create_task(self._run(wanted))
            self._task.add_done_callback(self._over)
        elif self._whole:
            self._must_restart()

    def _over(self, task: asyncio.Task[None]) -> None:
        self._task = self._current = None
        self._go_on()

    async def end(self, journal: int) -> None:
        """Its record has another epoch. Nothing is left of it on return; after an error there may be, so it is called
        again. What is found here or not, the disk is asked: a task that is cancelled tells nobody that it left it."""
        wanted, task = self._wanted.pop(journal, None), self._task
        if task is not None and self._current == journal:
            task.cancel()
            await asyncio.wait([task])
        if wanted is not None:
            wanted.copying.state.installing = ""
        await _on_thread(lambda: remove_install(self._store.engine.read_disk, journal))
        self._whole.pop(journal, None)
        if not self._whole:
            self._cancel_restart()

    async def close(self) -> None:
        """What is not whole goes."""
        self._is_closed = True
        self._cancel_restart()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _cancel_restart(self) -> None:
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None

    async def _run(self, wanted: Wanted) -> None:
        """Once, when it is due."""
        state, loop = wanted.copying.state, asyncio.get_running_loop()
        self._is_pausing = True
        try:
            await asyncio.sleep(wanted.due - loop.time())
        finally:
            self._is_pausing = False
        try:
            await self._install(wanted)
        except (Fault, OSError, RequestFailed) as error:
            state.installing = f"not taken over yet, and is tried again: {_text_of(error)}"
            log.warning("journal %d: %s", state.number, state.installing)
        except Exception:
            log.exception("journal %d: it could not be taken over; trying again", state.number)
        wanted.due = loop.time() + wanted.pause
        wanted.pause = min(2 * wanted.pause, RETRY_SECONDS_MAX)

    async def _install(self, wanted: Wanted) -> None:
        state, engine = wanted.copying.state, self._store.engine
        log.info("journal %d: taking over all of it from broker %d", state.number, wanted.leader)
        free_min = ROOM_SEGMENTS * engine.config.segment_bytes
        staged = await _on_thread(
            lambda: StagedInstall(engine.read_disk, state.number, engine.serial, free_min=free_min)
        )
        steps = self.steps = InstallSteps(state.number, wanted.me, wanted.epoch, staged, wanted.beyond)
        try:
            await self._take(wanted, steps)
            await _on_thread(steps.complete)
        except BaseException:
            await _on_thread(staged.abandon)
            raise
        finally:
            self.steps = None
        self._whole[state.number] = staged
        state.installing = "taken over; the broker starts again with it"
        log.warning("journal %d: %s", state.number, state.installing)
        if self._restart is None:
            self._restart = asyncio.get_running_loop().call_later(TOGETHER_SECONDS, self._must_restart)

    async def _take(self, wanted: Wanted, steps: InstallSteps) -> None:
        state, loop, told_at = wanted.copying.state, asyncio.get_running_loop(), 0.0
        while (ask := steps.ask()) is not None:
            await self._step(wanted, steps, ask)
            state.installing = (
                f"being taken over from broker {wanted.leader}: {steps.share:.0%} of its records, "
                f"{steps.staged.bytes} bytes"
            )
            if loop.time() - told_at > TOLD_SECONDS:
                told_at = loop.time()
                log.info("journal %d: %s", state.number, state.installing)

    async def _step(self, wanted: Wanted, steps: InstallSteps, ask: InstallAsk) -> None:
        """Asked again if the link ends: nothing changes by being asked twice."""
        with await self._asked(wanted, ask) as installed:
            told, data = installed.told, installed.data
            await _on_thread(lambda: steps.took(told, data))
            size = len(data)
        self.bytes_taken += size
        await asyncio.sleep(self._throttle.wait_ms(size, self._rate(), self._now_ms()) / 1000)

    async def _asked(self, wanted: Wanted, ask: InstallAsk) -> Installed:
        loop = asyncio.get_running_loop()
        until = loop.time() + LINK_SECONDS
        while loop.time() < until:
            link = self._link_to(wanted.leader)
            if link is not None:
                try:
                    return await link.install(ask, PATIENCE_SECONDS)
                except LinkClosed:
                    pass
            await asyncio.sleep(LOOK_SECONDS)
        raise Fault(f"broker {wanted.leader} is not reached")


async def _on_thread(call: Callable[[], T]) -> T:
    """Waited for to its end, whoever is cancelled: what comes next is about the same files."""
    done = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        await asyncio.wait([done])
        raise


def _text_of(error: Fault | OSError | RequestFailed) -> str:
    return str(error) if isinstance(error, RequestFailed) else text_of(error)
