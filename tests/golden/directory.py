"""Golden data directories: unpacked, and what a start must find in them. record_directory.py makes them."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

from cairnmq.storage.engine import Engine
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.reads import Batches

DIRECTORIES = Path(__file__).with_name("directories")


def expected(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DIRECTORIES / f"{name}.json").read_text())
    return found


def unpack(name: str, target: Path) -> Path:
    data = lzma.decompress((DIRECTORIES / f"{name}.tar.xz").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(target, filter="data")
    return target


def seen(engine: Engine) -> dict[str, Any]:
    """What must be the same after an upgrade."""
    queues = {f"{queue.topic}-{queue.partition}": _queue(engine, queue) for queue in engine.queues.values()}
    keyed = {f"{space} {key.hex()}": value.hex() for (space, key), value in engine.keyed.items() if space != "witness"}
    return {"queues": queues, "keyed": keyed}


def _queue(engine: Engine, queue: Queue) -> dict[str, Any]:
    digest, offset = hashlib.sha256(), queue.log_start
    while offset < queue.high_watermark:
        found = engine.reads.read(queue, offset, 1 << 20, whole=True, cached=False)
        assert isinstance(found, Batches), found
        for piece in found.buffers:
            digest.update(piece)
        offset = found.next_offset
    producers = {
        str(pid): [row.epoch, [list(batch) for batch in row.batches], row.coordinator_epoch, row.txn_start]
        for pid, row in queue.state.producers.items()
    }
    return {
        "start": queue.log_start,
        "end": queue.high_watermark,
        "epochs": [list(row) for row in queue.state.epochs],
        "producers": producers,
        "records": digest.hexdigest(),
    }
