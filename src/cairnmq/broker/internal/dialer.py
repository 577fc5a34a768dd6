"""Keeps one link to each peer: connects again after a pause that grows, and notices a broker that is gone (R35)."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from typing import ParamSpec

from cairnmq.broker.internal.link import Link
from cairnmq.broker.internal.link_timing import LinkTiming
from cairnmq.broker.options import Address
from cairnmq.broker.runtime import Runtime
from cairnmq.os_errors import reason_of
from cairnmq.wire.internal import DATA
from cairnmq.wire.internal_handshake import Identity, LinkRefused

P = ParamSpec("P")

log = logging.getLogger(__name__)

PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.02, 1.0
REFUSED_WITHIN_SECONDS = 0.2
LASTING_SECONDS = 3.0
"""So long a link may fail before people are told: brokers start one after another."""


class Dialer:
    """`on_link` is given each new link; its `closed` tells when it is over. `on_refused` hears of a broker whose
    address refused two connections within 200 ms while there was no link: nothing listens there any more. It hears so
    again while that lasts."""

    def __init__(
        self,
        identity: Callable[[], Identity],
        secret: bytes | None,
        on_link: Callable[[int, Link], None],
        on_refused: Callable[[int], None],
        runtime: Runtime,
        *,
        purpose: str = DATA,
        timing: LinkTiming | None = None,
    ) -> None:
        self._identity = identity
        self._secret = secret
        self._on_link = on_link
        self._on_refused = on_refused
        self._runtime = runtime
        self._purpose = purpose
        self._timing = timing or LinkTiming()
        self._numbers = itertools.count(1)  # of all peers: a link's number only has to grow
        self._addresses: dict[int, Address] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self.links: dict[int, Link] = {}
        self.trouble: dict[int, str] = {}  # why there is no link to a peer
        self._failing_since: dict[int, float] = {}
        self._is_closed = False

    def want(self, peers: Mapping[int, Address]) -> None:
        """Links to these brokers, and to no others, with this broker's identity as it is now. None after `close`: the
        metadata may still change."""
        if self._is_closed:
            return
        own = self._identity()
        for broker in [*self._tasks]:
            if peers.get(broker) != self._addresses[broker]:
                self._drop(broker)
        for broker, address in peers.items():
            link = self.links.get(broker)
            if link is not None and link.own != own:
                link.close("this broker has registered again")
            if broker not in self._tasks:
                self._addresses[broker] = address
                self._tasks[broker] = asyncio.get_running_loop().create_task(self._keep(broker, address))

    def lasting_trouble(self) -> dict[int, str]:
        """Why there has been no link to a peer for some time."""
        limit = asyncio.get_running_loop().time() - LASTING_SECONDS
        return {broker: text for broker, text in self.trouble.items() if self._failing_since[broker] <= limit}

    async def close(self) -> None:
        """Closes all links, for good."""
        self._is_closed = True
        tasks = list(self._tasks.values())
        for broker in [*self._tasks]:
            self._drop(broker)
        if tasks:
            await asyncio.wait(tasks)

    def _drop(self, broker: int) -> None:
        self._tasks.pop(broker).cancel()
        del self._addresses[broker]
        self._forget_trouble(broker)
        link = self.links.pop(broker, None)
        if link is not None:
            link.close("not needed any more")

    async def _keep(self, broker: int, address: Address) -> None:
        loop = asyncio.get_running_loop()
        pause, refused_at = PAUSE_SECONDS_MIN, float("-inf")
        while True:
            wait = pause
            try:
                link = await self._connect(broker, address)
            except ConnectionRefusedError as error:
                self._failed(broker, reason_of(error))
                now = loop.time()
                if now - refused_at <= REFUSED_WITHIN_SECONDS:
                    refused_at = float("-inf")
                    self._tell(self._on_refused, broker)
                else:
                    refused_at, wait = now, PAUSE_SECONDS_MIN  # the second attempt follows at once
            except (OSError, LinkRefused) as error:
                self._failed(broker, reason_of(error) if isinstance(error, OSError) else error.text)
            else:
                refused_at = float("-inf")
                opened_at = loop.time()
                await self._use(broker, link)
                if loop.time() - opened_at > PAUSE_SECONDS_MAX:
                    pause = PAUSE_SECONDS_MIN
                    continue
            await asyncio.sleep(wait)
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    async def _connect(self, broker: int, address: Address) -> Link:
        return await Link.connect(
            address.host,
            address.port,
            self._identity(),
            self._secret,
            next(self._numbers),
            self._runtime,
            purpose=self._purpose,
            to=broker,
            timing=self._timing,
        )

    async def _use(self, broker: int, link: Link) -> None:
        """Until it is closed."""
        if link.own != self._identity():
            link.close("this broker has registered again")
            return
        self._forget_trouble(broker)
        self.links[broker] = link
        log.info("link to broker %d opened", broker)
        try:
            self._tell(self._on_link, broker, link)
            reason = await asyncio.shield(link.closed)
            log.info("link to broker %d closed: %s", broker, reason)
        finally:
            if self.links.get(broker) is link:
                del self.links[broker]
            link.close("not needed any more")

    def _tell(self, callback: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Whatever goes wrong there: this peer must be tried again."""
        try:
            callback(*args, **kwargs)
        except Exception:
            log.exception("links: a change could not be handled")

    def _failed(self, broker: int, text: str) -> None:
        """Said once for each reason: it is tried again without end."""
        self._failing_since.setdefault(broker, asyncio.get_running_loop().time())
        if self.trouble.get(broker) != text:
            self.trouble[broker] = text
            log.warning("link to broker %d cannot be opened: %s; trying again", broker, text)

    def _forget_trouble(self, broker: int) -> None:
        self.trouble.pop(broker, None)
        self._failing_since.pop(broker, None)
