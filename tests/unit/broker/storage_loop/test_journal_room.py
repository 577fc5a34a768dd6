"""Room on the write disk; what failing writes do with it is in test_journal_loop."""

from __future__ import annotations

import errno

from cairnmq.broker.machine import MACHINE
from cairnmq.broker.storage_loop.journal_room import JournalRoom
from cairnmq.broker.storage_loop.journal_threads import JournalThreads
from unit.broker.rig import scenario, until
from unit.storage.replica_harness import Leading


@scenario
async def test_the_next_file_is_given_back_when_it_is_not_being_written_to() -> None:
    leading, threads = Leading(segment_bytes=200), JournalThreads.own(0, MACHINE.executor)
    journal, writing = leading.path.journal, True
    room = JournalRoom(journal, threads, lambda: writing)
    leading.put()
    room.prepare_next()
    await until(lambda: leading.disk.exists("0/next.new"))
    await until(lambda: not room._preparing)
    room.is_needed(True)
    assert leading.disk.exists("0/next.new")
    writing = False
    room.unprepare_if_full()
    await until(lambda: not leading.disk.exists("0/next.new"))
    threads.close()
    room.close()


@scenario
async def test_only_a_full_disk_costs_the_reserve() -> None:
    leading, threads = Leading(), JournalThreads.own(0, MACHINE.executor)
    journal, disk = leading.path.journal, leading.disk
    journal.reserve.size = 1 << 20
    room = JournalRoom(journal, threads, lambda: False)
    room.hold_reserve()
    await until(lambda: "reserve" in disk.list("0"))
    room.release_if_full(OSError(errno.EIO, "no"))
    room.release_if_full(MemoryError())
    threads.write.submit(bool).result()
    assert "reserve" in disk.list("0")
    room.release_if_full(OSError(errno.ENOSPC, "full"))
    await until(lambda: "reserve" not in disk.list("0"))
    threads.close()
