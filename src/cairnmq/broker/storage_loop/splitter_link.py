"""The broker's end of the splitter process: starts it, restarts it when it dies alone, passes messages."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence

from cairnmq.broker.runtime import ChildProcess
from cairnmq.broker.storage_loop.splitter_messages import Ask, Begin, Inbox, Order, Report, framed, reports
from cairnmq.errors import Fault
from cairnmq.os_errors import text_of

log = logging.getLogger(__name__)

RESTART_SECONDS_MIN = 0.05
RESTART_SECONDS_MAX = 5.0


class SplitterLink:
    """Lives on the loop thread. `begin` gives the first message, with where a successor has to resume."""

    def __init__(
        self,
        lock_fds: Sequence[int],
        begin: Callable[[bool], Begin],
        on_report: Callable[[Report], None],
        before_successor: Callable[[], Awaitable[None]],
        start_process: Callable[[Sequence[int]], tuple[ChildProcess, socket.socket]],
    ) -> None:
        self._start_process = start_process
        self._lock_fds = lock_fds
        self._begin = begin
        self._on_report = on_report
        self._before_successor = before_successor
        self._restarting: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._process: ChildProcess | None = None
        self._socket: socket.socket | None = None
        self._inbox = Inbox()
        self._outbox = bytearray()
        self._closing = False
        self._delay = RESTART_SECONDS_MIN
        self._gone: asyncio.Event = asyncio.Event()
        self._begun = True
        self.restarts = 0
        self.trouble = ""  # why there is no splitter

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self, *, resume: bool = False) -> None:
        begin = self._begin(resume)
        self._process, ours = self._start_process(self._lock_fds)
        try:
            self._loop.add_reader(ours, self._readable)
        except Exception:
            ours.close()
            raise
        self._socket = ours
        self._inbox = Inbox()
        self._outbox = bytearray()
        self._begun = not resume  # a successor says so; the first one has nothing to say
        self.send(begin)

    def send(self, order: Order) -> None:
        if self._socket is None:
            return  # between two splitters; the next one's Begin says all that counts
        waiting = bool(self._outbox)
        self._outbox += framed(order)
        if not waiting:
            self._writable()

    def _writable(self) -> None:
        if self._socket is None:
            return
        try:
            sent = self._socket.send(self._outbox)
            del self._outbox[:sent]
        except BlockingIOError:
            pass
        except OSError:
            return  # the reader notices
        if self._outbox:
            self._loop.add_writer(self._socket, self._writable)
        else:
            self._loop.remove_writer(self._socket)

    def _readable(self) -> None:
        """Reads until there is no more: when the other end closes with orders unread, libuv reports an error once, and
        watches no longer, although reports and the end of the stream are still to be read."""
        while self._socket is not None:
            try:
                data = self._socket.recv(1 << 20)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._ended()
                return
            for report in reports(self._inbox.feed(data)):
                if not isinstance(report, Ask):  # that may be part of a beginning which then fails
                    self._begun, self._delay, self.trouble = True, RESTART_SECONDS_MIN, ""
                try:
                    self._on_report(report)
                except Exception:  # it waits for answers to those that follow, and its end must be seen
                    log.exception("splitter report could not be applied: %s", type(report).__name__)

    def _ended(self) -> None:
        assert self._socket is not None and self._process is not None
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self._socket = None
        self._loop.run_in_executor(None, self._process.wait)
        if self._closing:
            self._gone.set()
            return
        if not self._begun:
            self.trouble = "splitter cannot be started: the last process ended during its start; see the log"
        log.warning("splitter process %d ended; restarting it in %.2f s", self._process.pid, self._delay)
        self.restarts += 1
        self._restarting = self._loop.create_task(self._restart(self._delay))
        self._delay = min(self._delay * 2, RESTART_SECONDS_MAX)

    async def _restart(self, delay: float) -> None:
        """Until there is one, whatever is in the way: nobody else would try."""
        await asyncio.sleep(delay)
        while not self._closing:
            try:
                await self._before_successor()
                if not self._closing:
                    self.start(resume=True)
                return
            except Exception as error:
                self.trouble = f"splitter cannot be started: {text_of(error)}"
                unknown = not isinstance(error, OSError | Fault)
                log.error("%s; trying again in %.0f s", self.trouble, RESTART_SECONDS_MAX, exc_info=unknown)
                await asyncio.sleep(RESTART_SECONDS_MAX)

    def closing(self) -> None:
        """From here on the end of the process is expected."""
        self._closing = True
        if self._socket is None:
            self._gone.set()

    async def gone(self) -> None:
        await self._gone.wait()

    def kill(self) -> None:
        self._closing = True
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
