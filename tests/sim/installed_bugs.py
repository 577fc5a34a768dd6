"""Bugs of installs on real storage, planted one at a time: the simulation must find each within a hundred seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from cairnmq.broker.cluster.install_service import InstallService
from cairnmq.storage.files.format import Aborted
from cairnmq.storage.install import installed
from cairnmq.storage.install.staged_install import StagedInstall
from cairnmq.storage.live.hosting import Hosting
from cairnmq.storage.queue.state import QueueState
from cairnmq.types import Buffer

Plant = Callable[[pytest.MonkeyPatch], None]


def an_install_without_producers(patch: pytest.MonkeyPatch) -> None:
    add = StagedInstall.add_rows

    def lossy(staged: StagedInstall, frame: Buffer) -> None:
        add(staged, frame)
        for queue_id, row in staged.image.queues.items():
            state = QueueState.from_row(row)
            state.producers, state.transactions = {}, None
            staged.image.queues[queue_id] = state.to_row(queue_id, -1, row.packed_bytes)

    patch.setattr(StagedInstall, "add_rows", lossy)


def an_install_without_facts(patch: pytest.MonkeyPatch) -> None:
    add = StagedInstall.add_rows

    def lossy(staged: StagedInstall, frame: Buffer) -> None:
        add(staged, frame)
        staged.image.keyed.clear()

    patch.setattr(StagedInstall, "add_rows", lossy)


def an_install_without_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    end = StagedInstall.end_queue

    def lossy(staged: StagedInstall, queue_id: int, log_start: int, aborted: Sequence[Aborted]) -> None:
        end(staged, queue_id, log_start, ())

    patch.setattr(StagedInstall, "end_queue", lossy)


def a_log_start_that_moves_leaves_epochs(patch: pytest.MonkeyPatch) -> None:
    end = StagedInstall.end_queue

    def lossy(staged: StagedInstall, queue_id: int, log_start: int, aborted: Sequence[Aborted]) -> None:
        epochs = staged.image.queues[queue_id].epochs
        end(staged, queue_id, log_start, aborted)
        staged.image.queues[queue_id] = replace(staged.image.queues[queue_id], epochs=epochs)

    patch.setattr(StagedInstall, "end_queue", lossy)


def what_came_before_a_tombstone_went_is_kept(patch: pytest.MonkeyPatch) -> None:
    """A record whose tombstone is gone by now comes back."""
    patch.setattr(Hosting, "rewrites", lambda hosting, queue: int(queue.config.compact))


def the_journal_is_not_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(InstallService, "_pin", lambda service, journal: service._hosting.pins.pop(journal, None))


def the_journal_of_before_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(installed._Installed, "_remove_journal", lambda one: None)
