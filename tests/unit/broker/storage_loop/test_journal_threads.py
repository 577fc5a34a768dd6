"""Threads of journals."""

from __future__ import annotations

import threading

from cairnmq.broker.machine import MACHINE
from cairnmq.broker.storage_loop.journal_threads import SHARED_SYNCS, JournalThreads


def test_syncs_of_different_journals_go_on_at_the_same_time() -> None:
    threads, together = JournalThreads.shared(MACHINE.executor), threading.Barrier(SHARED_SYNCS)
    syncs = [threads.sync.submit(together.wait, 20) for _ in range(SHARED_SYNCS)]
    assert sorted(sync.result() for sync in syncs) == list(range(SHARED_SYNCS))
    threads.close()


def test_a_journal_s_own_threads_bear_its_name() -> None:
    threads = JournalThreads.own(7, MACHINE.executor)
    names = [pool.submit(lambda: threading.current_thread().name).result() for pool in (threads.write, threads.sync)]
    assert [name.rpartition("_")[0] for name in names] == ["journal-7-write", "journal-7-sync"]
    threads.close()
    threads.close()
