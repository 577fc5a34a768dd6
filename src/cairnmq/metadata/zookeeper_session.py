"""Sessions of the ZooKeeper store: a connection of their own, a node that ends with it, and a watchdog."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cairnmq.errors import Fault, Unreachable
from cairnmq.metadata import zookeeper_tree as tree
from cairnmq.metadata.store import (
    ABSENT,
    Away,
    Conflict,
    InDoubt,
    Leadership,
    NextEpoch,
    Op,
    Put,
)

if TYPE_CHECKING:
    from cairnmq.metadata.zookeeper import ZookeeperStore

log = logging.getLogger("cairnmq.metadata")

CONNECT_MS = 5000
"""The other connection responds, so there is a server."""


class ZookeeperSession:
    """Kazoo keeps the session alive on a thread of its own, whatever becomes of the process around it. So a watchdog
    ends it when nobody has renewed it for half of its time (R13)."""

    def __init__(self, store: ZookeeperStore, name: str, timeout_ms: int) -> None:
        self.confirmed_ms = store.nodes.clock()
        self._store = store
        self._nodes = store.nodes
        self._name = name
        self._path = store.nodes.path(tree.session_path(name))
        self._timeout_ms = timeout_ms
        self._over = threading.Event()
        self._renewed_ms = self.confirmed_ms  # asked to be, whatever the answer was
        self._link = self._nodes.new_link(timeout_ms)
        try:
            with self._nodes.using():
                self._link.start(CONNECT_MS)
            granted_ms = self._link.granted_ms
            if granted_ms < timeout_ms:
                raise Fault(
                    f"{store.address} grants a session at most {granted_ms} ms: set cairn.session.ms to {granted_ms} "
                    f"or less, or raise maxSessionTimeout of ZooKeeper"
                )
            if granted_ms > timeout_ms:
                log.warning(
                    "ZooKeeper grants sessions of at least %d ms, and cairn.session.ms is %d: a broker that dies is "
                    "missed later (tickTime of ZooKeeper, or minSessionTimeout)",
                    granted_ms,
                    timeout_ms,
                )
            with self._nodes.using():
                self._link.make_own(self._path)
        except BaseException:
            self._link.close()
            raise
        self._watchdog = threading.Thread(target=self._watch, name="zookeeper-watchdog", daemon=True)
        self._watchdog.start()

    @property
    def live(self) -> bool:
        """Whether ZooKeeper still holds the session for alive."""
        return not self._has_ended() and self._name in self._nodes.root()[0].live

    @property
    def pace_ms(self) -> int:
        """How often to renew: three times before the watchdog bites."""
        return self._timeout_ms // 6

    def renew(self) -> bool | Away:
        """Ask ZooKeeper whether the session is alive. Its leader is asked, not only the server at hand."""
        try:
            return self._renew()
        finally:
            self._renewed_ms = self._nodes.clock()

    def _renew(self) -> bool | Away:
        sent_ms = self._nodes.clock()
        try:
            with self._nodes.using():  # first: whoever asks notices that a server is silent
                _, node = self._link.fetch(
                    [lambda client: client.sync_async(self._path), lambda client: client.exists_async(self._path)]
                )
            self._store.look()
        except Unreachable as error:
            if not self._has_ended():
                return Away(str(error))
            node = None
        if node is None:
            self.close()
            return False
        self.confirmed_ms = sent_ms
        return True

    def register(
        self, key: str, value: bytes, *, expect: int = ABSENT, also: Sequence[Op | NextEpoch] = ()
    ) -> int | Conflict | Away | InDoubt:
        """Set a key that disappears with the session."""
        return self._store.register(self._name, Put(key, value, expect), also)

    def elect(self, name: str, value: bytes) -> Leadership | Conflict | Away | InDoubt:
        """Become the leader `name` under a new epoch if nobody is."""
        return self._store.elect(self._name, name, value)

    def _has_ended(self) -> bool:
        """As far as this process knows."""
        return self._link.ended

    def close(self) -> None:
        """End it now."""
        self._over.set()
        self._watchdog.join()
        self._link.close()
        self._store.forget(self)

    def _watch(self) -> None:
        while not self._over.wait(self._timeout_ms / 20_000):
            silence_ms = self._nodes.clock() - max(self._renewed_ms, self._nodes.busy_until_ms)
            # Without a connection nobody keeps the session alive, and while ZooKeeper is away nobody else can lead.
            if silence_ms > self._timeout_ms // 2 and not self._nodes.busy and self._link.connected:
                log.error(
                    "the metadata session is ended: this process has not renewed it for %d ms, of %d; others may "
                    "lead now",
                    silence_ms,
                    self._timeout_ms,
                )
                self._link.close()
                return
