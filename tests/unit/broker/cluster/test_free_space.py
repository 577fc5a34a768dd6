"""The room on a journal disk, as leaders are told."""

from __future__ import annotations

import errno

from cairnmq.broker.cluster.free_space import FreeSpace
from cairnmq.replication.messages import ENDLESS
from unit.broker.rig import scenario


@scenario
async def test_the_last_answer_of_the_disk_counts() -> None:
    answers: list[int | OSError] = [OSError(errno.EIO, "no"), 700, OSError(errno.EIO, "no"), 5]

    async def measure() -> int:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    free, seen = FreeSpace(measure), []
    for _ in range(4):
        await free.look()
        seen.append(free.bytes)
    assert seen == [ENDLESS, 700, 700, 5]
