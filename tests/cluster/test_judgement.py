"""What the other tests go by can fail: a promised record is gone, a commit is gone, a byte differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from cluster.brokers import Cluster
from cluster.world import STRONG, Broken, World
from crash.ledger import Place
from history.events import Result


def test_what_is_wrong_is_found(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    world = World(cluster, Counter())
    with world.lived_in():
        send = world.history.send("nobody", Place(STRONG, 0), "never stored")
        world.history.answer(send, Result.ACKED, 1_000_000)
        weak = world.history.send("nobody", Place("weak", 0), "stored by one leader", weak=True)
        world.history.answer(weak, Result.ACKED, 1_000_001)
        world.history.answer(world.history.commit("classic", Place(STRONG, 1), 1_000_002), Result.ACKED)
        with pytest.raises(Broken) as found:
            world.finish()
        said = str(found.value)
        assert "lost: Place(topic='strong', partition=0): never stored" in said
        assert "lost: Place(topic='weak', partition=0): stored by one leader" in said, "no other one led since"
        assert "classic, Place(topic='strong', partition=1): 1000002 committed, later" in said
        # What is planted here is no fault of theirs.
        world.history.sends = [each for each in world.history.sends if each.writer != "nobody"]
        world.history.commits = [each for each in world.history.commits if each.offset < 1_000_000]
        world.judge([])
        told = cluster.described()
        assert cluster.stored_isr() == {place: {*row.isr_nodes} for place, row in told.items()}, "all are in sync"
    cluster.stop()
    cluster.verify()
    journal = min((cluster.brokers[2].data / "journal").glob("*/*.jnl"))
    content = bytearray(journal.read_bytes())
    content[100] ^= 1
    journal.write_bytes(bytes(content))
    with pytest.raises(AssertionError, match=rf"{journal}: differs from .*node1.*node3.* at journal position"):
        cluster.verify()
