"""What every handler may use. One object per broker; everything in it lives on the loop thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from cairnmq.broker.budget import Budget
from cairnmq.broker.facts import FactLog
from cairnmq.broker.metrics import Metrics
from cairnmq.broker.router import Router
from cairnmq.groups.offsets import Offsets
from cairnmq.settings.broker import BrokerConfig

if TYPE_CHECKING:
    from cairnmq.broker.catalog import LiveCatalog
    from cairnmq.broker.store import Store

_REQUEST_BYTES_IN_FLIGHT = 256 * 1024 * 1024


class Node(Struct, frozen=True):
    """This broker as clients see it."""

    node_id: int
    host: str
    port: int
    rack: str | None
    cluster_id: str


class Context:
    """`config` is replaced when a dynamic setting changes; read it when needed, never keep it."""

    __slots__ = ("store", "catalog", "config", "node", "metrics", "clock", "budget", "offsets", "facts", "router")

    def __init__(
        self,
        *,
        store: Store,
        catalog: LiveCatalog,
        config: BrokerConfig,
        node: Node,
        offsets: Offsets,
        router: Router,
        clock: Callable[[], int],
    ) -> None:
        self.store = store
        self.catalog = catalog
        self.config = config
        self.node = node
        self.offsets = offsets
        self.router = router
        self.clock = clock
        self.metrics = Metrics()
        self.budget = Budget(_REQUEST_BYTES_IN_FLIGHT)
        self.facts = FactLog(store.put_facts, offsets.apply)
