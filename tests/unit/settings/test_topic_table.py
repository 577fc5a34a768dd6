"""The table against Kafka 4.3's topic settings, written down a second time: names, types, defaults, broker names."""

from __future__ import annotations

import pytest

from cairnmq.errors import Refusal
from cairnmq.settings.definition import read
from cairnmq.settings.topic_table import TOPIC

MAX = "9223372036854775807"
# name, type, Kafka's default, strongest broker name. The one default that differs is flush.ms (interface).
KAFKA = """
cleanup.policy                          LIST    delete      log.cleanup.policy
compression.gzip.level                  INT     -1          compression.gzip.level
compression.lz4.level                   INT     9           compression.lz4.level
compression.type                        STRING  producer    compression.type
compression.zstd.level                  INT     3           compression.zstd.level
delete.retention.ms                     LONG    86400000    log.cleaner.delete.retention.ms
file.delete.delay.ms                    LONG    60000       log.segment.delete.delay.ms
flush.messages                          LONG    MAX         log.flush.interval.messages
flush.ms                                LONG    500         log.flush.interval.ms
follower.replication.throttled.replicas LIST    -           -
index.interval.bytes                    INT     4096        log.index.interval.bytes
leader.replication.throttled.replicas   LIST    -           -
local.retention.bytes                   LONG    -2          log.local.retention.bytes
local.retention.ms                      LONG    -2          log.local.retention.ms
max.compaction.lag.ms                   LONG    MAX         log.cleaner.max.compaction.lag.ms
max.message.bytes                       INT     1048588     message.max.bytes
message.timestamp.after.max.ms          LONG    3600000     log.message.timestamp.after.max.ms
message.timestamp.before.max.ms         LONG    MAX         log.message.timestamp.before.max.ms
message.timestamp.type                  STRING  CreateTime  log.message.timestamp.type
min.cleanable.dirty.ratio               DOUBLE  0.5         log.cleaner.min.cleanable.ratio
min.compaction.lag.ms                   LONG    0           log.cleaner.min.compaction.lag.ms
min.insync.replicas                     INT     1           min.insync.replicas
preallocate                             BOOLEAN false       log.preallocate
remote.log.copy.disable                 BOOLEAN false       -
remote.log.delete.on.disable            BOOLEAN false       -
remote.storage.enable                   BOOLEAN false       -
retention.bytes                         LONG    -1          log.retention.bytes
retention.ms                            LONG    604800000   log.retention.ms
segment.bytes                           INT     1073741824  log.segment.bytes
segment.index.bytes                     INT     10485760    log.index.size.max.bytes
segment.jitter.ms                       LONG    0           log.roll.jitter.ms
segment.ms                              LONG    604800000   log.roll.ms
unclean.leader.election.enable          BOOLEAN false       unclean.leader.election.enable
"""
ROWS = [line.split() for line in KAFKA.strip().splitlines()]


@pytest.mark.parametrize(("name", "type", "default", "broker"), ROWS, ids=lambda cell: str(cell))
def test_row(name: str, type: str, default: str, broker: str) -> None:
    row = TOPIC[name]
    assert row.setting.type.name == type
    assert row.setting.default == {"MAX": MAX, "-": ""}.get(default, default)
    assert [b.name for b in row.broker_names[:1]] == ([] if broker == "-" else [broker])


def test_nothing_is_missing_and_all_else_is_ours() -> None:
    ours = {name for name in TOPIC if name.startswith("cairn.")}
    assert set(TOPIC) - ours == {row[0] for row in ROWS} | {"internal.segment.bytes"}
    assert ours == {f"cairn.{n}" for n in ("flush", "model", "engine", "archive", "view.of", "view.filter")}


@pytest.mark.parametrize("name", TOPIC)
def test_every_default_is_allowed(name: str) -> None:
    default = TOPIC[name].setting.default
    assert default is not None and not isinstance(read(TOPIC[name].setting, default), Refusal)


@pytest.mark.parametrize("name", TOPIC)
def test_every_row_has_a_sentence(name: str) -> None:
    assert TOPIC[name].setting.doc.endswith(".")
