"""What a start has opened before anything serves: metadata and storage. `assembly.py` makes a broker of them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cairnmq.broker.runtime import Executor
from cairnmq.metadata.catalog import Catalog
from cairnmq.settings.broker import BrokerConfig
from cairnmq.storage.api.start import Engine, OwnerWitness
from cairnmq.types import Slots


class OpenMetadata(Struct, frozen=True, eq=False):
    """`thread` alone calls the catalog. `config`: what holds now, with the settings that were changed at run time."""

    catalog: Catalog
    thread: Executor
    config: BrokerConfig
    witness: OwnerWitness


class OpenStorage(Struct, frozen=True, eq=False):
    """Recovered. `slots`: made by then, unless in a cluster. `lock_fds`: the locks of its directories, which the
    splitter process holds too."""

    engine: Engine
    slots: Slots | None
    journal_dir: str
    data_dir: str
    lock_fds: Sequence[int] = ()
    recovery_seconds: float = 0.0
