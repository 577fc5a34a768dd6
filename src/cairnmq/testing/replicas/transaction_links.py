"""Control links between simulated brokers: numbered, in order, and slow enough to meet their successors."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar, cast

if TYPE_CHECKING:
    from cairnmq.testing.replicas.transaction_process import TransactionProcess

SILENCE_MS = 2_000
LATE_MS = 6_000

R = TypeVar("R")
Respond = Callable[[R], None]
IsOpen = Callable[[], bool]
Serve = Callable[["TransactionProcess", Respond[R], IsOpen], None]


class SimLink:
    """As the side that asks has it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.arrives_ms = 0  # of the last message: they keep their order
        self.asked: dict[int, Callable[[object], None]] = {}


class ControlLinks(Generic[R]):
    """Of one process, to and from all others."""

    def __init__(self, process: TransactionProcess) -> None:
        self._process = process
        self._links: dict[int, SimLink] = {}
        self._numbers, self._requests = count(1), count(1)
        self.newest: dict[int, tuple[int, int]] = {}  # by broker: the link that counts (R26)

    def _delay(self) -> int:
        """Mostly short; now and then long, in some worlds more often."""
        shared = self._process.shared
        random = shared.schedule.random
        return random.randint(0, LATE_MS if random.random() < shared.late_share else 30)

    def ask(self, broker: int, serve: Serve[R], deliver: Callable[[R | None], None]) -> None:
        """`deliver` is given None when the link is closed before the response is there."""
        process, schedule = self._process, self._process.shared.schedule
        link = self._links.setdefault(broker, SimLink(next(self._numbers)))
        request = next(self._requests)
        link.asked[request] = deliver  # type: ignore[assignment]  # None or what was asked for

        def respond(response: R) -> None:
            pair = (broker, process.id)
            if pair in process.shared.network.cuts:
                return
            schedule.after(self._delay(), process.guarded(lambda: self._answer(link, request, response)))

        process.shared.schedule.after(SILENCE_MS, process.guarded(lambda: self._look(broker, link, request)))
        if (process.id, broker) in process.shared.network.cuts or process.me is None:
            return
        at = max(schedule.now_ms + self._delay(), link.arrives_ms)
        link.arrives_ms = at
        name = (process.me.broker_epoch, link.number)
        sender = process.id

        def arrive() -> None:
            other = cast("TransactionProcess | None", process.shared.processes.get(broker))
            if other is not None:
                other.guarded(lambda: cast("ControlLinks[R]", other.links).arrived(sender, name, serve, respond))()

        schedule.after(at - schedule.now_ms, arrive)

    def arrived(self, sender: int, name: tuple[int, int], serve: Serve[R], respond: Respond[R]) -> None:
        """A request. What comes by an older link is dropped."""
        if not self.counts(sender, name):
            return
        self.newest[sender] = name
        serve(self._process, respond, lambda: self.counts(sender, name))

    def counts(self, sender: int, name: tuple[int, int]) -> bool:
        """Whether no later link of this broker has been seen."""
        return name >= self.newest.get(sender, (0, 0))

    def _answer(self, link: SimLink, request: int, response: R) -> None:
        deliver = link.asked.pop(request, None)
        if deliver is not None:
            deliver(response)

    def _look(self, broker: int, link: SimLink, request: int) -> None:
        """No response for long: the link is closed, and the next request goes over a new one."""
        if request not in link.asked:
            return
        if self._links.get(broker) is link:
            del self._links[broker]
        asked, link.asked = link.asked, {}
        for deliver in asked.values():
            deliver(None)
