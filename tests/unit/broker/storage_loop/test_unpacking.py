"""Batches that are unpacked off the loop."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from cairnmq.broker.storage_loop.unpacking import Unpacking
from unit.broker.rig import until


def test_jobs_end_in_order_and_queues_are_held_meanwhile() -> None:
    async def run() -> None:
        with ThreadPoolExecutor(1, "unpack") as pool:
            unpacking, go, done = Unpacking(pool), threading.Event(), []
            unpacking.run(Counter([1, 2]), go.wait, lambda met: done.append(("first", met)))
            unpacking.run(Counter([2]), threading.current_thread, lambda thread: done.append(("second", thread.name)))
            assert unpacking.requests == 2 and unpacking.queues == {1: 1, 2: 2}
            go.set()
            await until(lambda: len(done) == 2)
            assert done[0] == ("first", True) and done[1][1].startswith("unpack")
            assert unpacking.requests == 0 and not unpacking.queues

    asyncio.run(run())
