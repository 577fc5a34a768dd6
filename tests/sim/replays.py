"""A seed gives the same run in every process: a number for what went over the network, told by other processes too."""

from __future__ import annotations

import os
import subprocess
import sys
from zlib import crc32

from cairnmq.testing.brokers.sim_cluster import ClusterWorld
from cairnmq.testing.brokers.sim_world import FaultyWorld


def number_of(world: FaultyWorld | ClusterWorld, at_least: int) -> int:
    """Runs it. `at_least`: so much must go over the network."""
    seen: list[tuple[float, str, int]] = []
    world.network.observe = lambda name, data: seen.append((world.loop.time(), name, crc32(data)))
    world.run()
    assert len(seen) > at_least
    return crc32(repr((seen, world.struck, world.workload.told)).encode())


def told_elsewhere(module: str, seed: int) -> set[int]:
    """What `trace` of a module says in two processes with other hash values."""
    script = f"from {module} import trace; print(trace({seed}))"
    paths = os.pathsep.join(filter(None, sys.path))
    return {
        int(
            subprocess.check_output(
                [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": paths}
            )
        )
        for hashes in ("1", "2")
    }
