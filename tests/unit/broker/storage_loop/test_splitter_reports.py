"""What the splitter reports, as the broker takes it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cairnmq.broker.storage_loop.splitter_messages import Checkpointed, Seen, SyncFailed, Trouble
from cairnmq.storage.checkpoint.split_report import Published
from unit.broker.rig import open_rig, scenario


@scenario
async def test_a_checkpoint_counts_although_old_segments_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by chaos (EIO of unlink): what else the splitter had reported at the same time was lost."""
    async with open_rig(tmp_path) as rig:
        store, sent = rig.ctx.store, []

        def fail(position: int) -> int:
            raise OSError(errno.EIO, "unlink")

        monkeypatch.setattr(store.engine.paths[0].journal, "remove_below", fail)
        monkeypatch.setattr(store.splitter.link, "send", sent.append)
        store.splitter.reports.take(Checkpointed(Published(7, dict(store.engine.split), []), 0.1))
        assert sent == [Seen(7)]
        assert store.engine.checkpointed == store.engine.split
        monkeypatch.undo()


@scenario
async def test_the_trouble_of_a_splitter_ends_with_it(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        store = rig.ctx.store
        store.splitter.reports.take(Trouble("splitter: no space left on device"))
        assert store.stats().splitter_trouble
        store.splitter.begin(resume=True)
        assert not store.stats().splitter_trouble
        store.splitter.reports.take(SyncFailed("a sync failed"))
        store.splitter.begin(resume=True)
        store.splitter.reports.take(Trouble("splitter: no space left on device"))
        assert store.stats().splitter_trouble == "a sync failed; splitter: no space left on device"
        store.splitter.reports.take(Trouble(None))
        assert store.stats().splitter_trouble == "a sync failed", "all since the last checkpoint is in doubt"
        store.splitter.reports.take(Checkpointed(Published(7, dict(store.engine.split), []), 0.1))
        assert not store.stats().splitter_trouble
