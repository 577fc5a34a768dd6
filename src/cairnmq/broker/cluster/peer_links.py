"""The links of this broker to the others: one to each for data, and others where they are needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack

from cairnmq.broker.internal.dialer import Dialer
from cairnmq.broker.internal.link import Link
from cairnmq.broker.options import Address
from cairnmq.broker.runtime import Runtime
from cairnmq.wire.internal import CONTROL, INSTALL
from cairnmq.wire.internal_handshake import Identity


def _no_news(*_: object) -> None:
    """The data links tell who is there."""


class PeerLinks:
    """`data` tells whom it cannot reach; `control` tells of its links."""

    def __init__(
        self,
        identity: Callable[[], Identity],
        secret: bytes | None,
        runtime: Runtime,
        *,
        on_data: Callable[[int, Link], None],
        on_control: Callable[[int, Link], None],
        on_refused: Callable[[int], None],
    ) -> None:
        self.data = Dialer(identity, secret, on_data, on_refused, runtime)
        self.control = Dialer(identity, secret, on_control, _no_news, runtime, purpose=CONTROL)
        self._installs = Dialer(identity, secret, _no_news, _no_news, runtime, purpose=INSTALL)

    def want(self, peers: Mapping[int, Address], *, control: bool, installers: Collection[int]) -> None:
        """Links to these brokers; for control if there is any, for installs to those that give something."""
        self.data.want(peers)
        self.control.want(peers if control else {})
        self.want_installs(peers, installers)

    def want_installs(self, peers: Mapping[int, Address], installers: Collection[int]) -> None:
        """Links of that purpose alone: an install must not make the requests of replicas wait."""
        self._installs.want({broker: peers[broker] for broker in installers if broker in peers})

    def install(self, broker: int) -> Link | None:
        """If it is there."""
        link = self._installs.links.get(broker)
        return link if link is not None and not link.closed.done() else None

    async def close(self) -> None:
        """Those for data first, so that no follower waits for a response."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._installs.close)
            stack.push_async_callback(self.control.close)
            stack.push_async_callback(self.data.close)
