"""Blocking code beside the loop: a thread that runs only while the loop waits for it. Nothing is left to chance.

It is given its turn when what it waits for has come or its time is over; the loop goes on when it waits again.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

_here = threading.local()


class Killed(BaseException):
    """Ends the thread, wherever it waits."""


class SimThread:
    """`work` runs on it, with the first `go_on`. `waits` is told on the loop for how many seconds it waits now, `ended`
    what it gave or raised."""

    def __init__(
        self,
        work: Callable[[], Any],
        waits: Callable[[float], object],
        ended: Callable[[Any, BaseException | None], object],
    ) -> None:
        self._work = work
        self._waits = waits
        self._ended = ended
        self._context = contextvars.copy_context()
        self._turn, self._rest = threading.Semaphore(0), threading.Semaphore(0)
        self._seconds = 0.0
        self._over = threading.Event()
        self._is_killed = False
        self._outcome: tuple[Any, BaseException | None] = (None, None)
        self._thread = threading.Thread(target=self._run, name="sim-thread", daemon=True)

    def go_on(self) -> None:
        """On the loop: until it waits again, or is over."""
        if self._over.is_set():
            return
        if not self._thread.ident:
            self._thread.start()
        self._turn.release()
        self._rest.acquire()
        if self._over.is_set():
            self._thread.join()
            self._ended(*self._outcome)
        else:
            self._waits(self._seconds)

    def kill(self) -> None:
        """On the loop: it does nothing more."""
        self._is_killed = True
        self.go_on()

    def wait(self, seconds: float) -> None:
        """On the thread."""
        self._seconds = seconds
        self._rest.release()
        self._turn.acquire()
        if self._is_killed:
            raise Killed

    def _run(self) -> None:
        self._turn.acquire()
        _here.thread = self
        try:
            if self._is_killed:
                raise Killed
            self._outcome = self._context.run(self._work), None
        except BaseException as error:  # noqa: BLE001 - of whoever waits for it
            self._outcome = None, error
        self._over.set()
        self._rest.release()


def current() -> SimThread | None:
    """The one that runs; None on the loop."""
    return getattr(_here, "thread", None)


def sleep(seconds: float) -> None:
    """On a simulated thread: time passes for all others."""
    thread = current()
    assert thread is not None, "the loop would stand still"
    thread.wait(seconds)
