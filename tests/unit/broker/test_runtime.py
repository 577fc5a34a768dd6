"""What a broker takes from its Runtime: the threads of one that is put together on another."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from cairnmq.broker.machine import MACHINE
from cairnmq.broker.runtime import Executor
from unit.broker.rig import open_rig, scenario


@scenario
async def test_all_threads_of_a_broker_are_asked_of_its_runtime(tmp_path: Path) -> None:
    asked: dict[str, int] = {}

    def executor(name: str, threads: int) -> Executor:
        asked[name] = threads
        return MACHINE.executor(name, threads)

    async with open_rig(tmp_path, runtime=replace(MACHINE, executor=executor)):
        pass
    assert asked == {
        "cold-read": 4, "unpack": 1, "journal-0-write": 1, "journal-0-sync": 1, "journal-0-prepare": 1,
    }  # fmt: skip
