"""The loads of the row differ in one thing: whether ours syncs."""

from __future__ import annotations

from msgspec.structs import asdict

from bench.replicas import SYNCED, load_of
from bench.results import CAIRN, KAFKA


def test_all_loads_are_alike_but_for_the_flush_policy() -> None:
    loads = {kind: load_of(kind, 1000, 500) for kind in (CAIRN, KAFKA, SYNCED)}
    assert {kind: load.topic_config.get("cairn_flush") for kind, load in loads.items()} == {
        CAIRN: "interval",
        KAFKA: None,
        SYNCED: "commit",
    }
    for load in loads.values():
        assert load.topic_config["min_insync_replicas"] == "2"
        assert (load.acks, load.idempotent, load.replicas) == ("all", True, 3)
        assert asdict(load) | {"topic_config": {}} == asdict(loads[KAFKA]) | {"topic_config": {}}
