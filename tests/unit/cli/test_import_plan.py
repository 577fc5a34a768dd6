"""Which topics, partitions and settings an import takes, and what it says about the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cairnmq.cli.import_ import parts
from cairnmq.cli.import_plan import Plan, make_plan, settings_of, wanted
from cairnmq.cli.main import main
from cairnmq.codec.records import Record, build_batch
from cairnmq.storage.kafka_import.kafka_directory import open_directory
from cairnmq.wire.kafka_records import KafkaTopic


def batch(offset: int, count: int = 1) -> bytes:
    return build_batch([Record(0, 1, None, b"x" * 100)] * count, base_offset=offset)


def directory(root: Path, *partitions: str) -> Path:
    for name in partitions:
        (root / name).mkdir(parents=True)
        (root / name / f"{0:020d}.log").write_bytes(batch(0) + batch(5) + batch(6, 2))
    return root


def plan_of(root: Path, *patterns: str) -> Plan:
    directories = [open_directory(str(root))]
    return make_plan(directories, patterns, abort_open=False, offsets=True, progress=lambda text: None)


def test_patterns() -> None:
    assert wanted("orders.eu", [])
    assert wanted("orders.eu", ["x", "orders.*"])
    assert not wanted("orders.eu", ["Orders*", "orders"])


def test_without_metadata_the_directories_tell(tmp_path: Path) -> None:
    plan = plan_of(directory(tmp_path, "a-0", "a-3", "b-0"))
    assert [(topic.name, topic.partitions, len(topic.logs)) for topic in plan.topics] == [("a", 4, 2), ("b", 1, 1)]
    assert "a: no directory holds partitions 1, 2; they are created empty" in plan.notes
    assert any(note.startswith("b: settings and number of partitions are unknown") for note in plan.notes)
    assert [topic.name for topic in plan_of(tmp_path, "b*").topics] == ["b"]


def test_every_problem_is_listed(tmp_path: Path) -> None:
    directory(tmp_path, "a-0", "b-0", "c-0")
    for name in ("a-0", "c-0"):
        file = tmp_path / name / f"{0:020d}.log"
        file.write_bytes(b"\0" * 100 + file.read_bytes())
    (tmp_path / ".kafka_cleanshutdown").touch()
    plan = plan_of(tmp_path)
    assert len(plan.problems) == 2 and "a-0" in plan.problems[0] and "c-0" in plan.problems[1]


def test_a_directory_that_can_be_no_partition_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory(tmp_path, "a-0", "a-20261116", "a-2026", "a-1999999", "a-01", "b-0")
    plan = plan_of(tmp_path)
    (problem,) = plan.problems
    assert problem.startswith(f"{tmp_path}/a-1999999: 1997972 partitions before it are missing; move it out")
    left_out = [note for note in plan.notes if note.endswith("not a live partition, left out")]
    assert len(left_out) == 2 and "a-01:" in left_out[0] and "a-20261116:" in left_out[1]
    directory(tmp_path, "__cluster_metadata-0")
    topics = {"a": KafkaTopic("a", bytes(16), 3, {})}
    monkeypatch.setattr("cairnmq.cli.import_plan.read_topics", lambda metadata: topics)
    plan = plan_of(tmp_path)
    assert [problem.split(": ")[0] for problem in plan.problems] == [f"{tmp_path}/a-2026", f"{tmp_path}/a-1999999"]
    assert "the topic has 3 partitions, so this is not one" in plan.problems[0]
    assert [(topic.name, topic.partitions) for topic in plan.topics] == [("a", 3), ("b", 1)]
    assert "a: no directory holds partitions 1, 2; they are created empty" in plan.notes


def test_committed_offsets_that_are_not_wanted_are_not_judged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory(tmp_path, "a-0", "__consumer_offsets-3")
    (tmp_path / "__consumer_offsets-3" / f"{0:020d}.log").write_bytes(b"\1" * 100)
    (tmp_path / ".kafka_cleanshutdown").touch()
    assert main(["import", str(tmp_path), "--dry-run"]) == 1
    assert "__consumer_offsets-3" in capfd.readouterr().err
    assert main(["import", str(tmp_path), "--dry-run", "--no-offsets"]) == 0
    assert "would import 4 records" in capfd.readouterr().err


def test_settings() -> None:
    notes: list[str] = []
    kafka = {
        "retention.ms": "5000",
        "min.insync.replicas": "2",
        "compression.type": "zstd",
        "no.such.setting": "1",
        "segment.bytes": "2097152",
    }
    assert settings_of("t", kafka, notes) == {"retention.ms": "5000", "segment.bytes": "2097152"}
    assert [note.split(" is not imported")[0] for note in notes] == [
        "t: compression.type=zstd",
        "t: min.insync.replicas=2",
        "t: no.such.setting=1",
    ]


def test_what_kafka_kept_for_ever_is_kept(tmp_path: Path) -> None:
    """Without its policy the topic would lose everything older than the default retention."""
    notes: list[str] = []
    assert settings_of("t", {"cleanup.policy": "compact"}, notes) == {"cleanup.policy": "compact"}
    assert notes == []
    assert settings_of("t", {"cleanup.policy": "later"}, notes) == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert "t: kept forever" in notes[1]
    assert settings_of("t", {"cleanup.policy": "delete", "retention.ms": "9"}, []) == {
        "cleanup.policy": "delete",
        "retention.ms": "9",
    }


def test_parts_leave_no_offset_out(tmp_path: Path) -> None:
    (log,) = plan_of(directory(tmp_path, "a-0")).logs
    small = list(parts(log, 0, 1))
    assert [(part.start, part.end, len(part.batches)) for part in small] == [(0, 1, 1), (1, 6, 1), (6, 8, 1)]
    assert [(part.start, part.end, len(part.batches)) for part in parts(log, 0, 1 << 20)] == [(0, 8, 3)]
    assert [(part.start, part.end, len(part.batches)) for part in parts(log, 6, 1 << 20)] == [(6, 8, 1)]
    assert list(parts(log, 8, 1)) == []


def test_the_command_without_a_broker(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    directory(tmp_path, "a-0")
    assert main(["import", str(tmp_path), "--dry-run"]) == 0
    out, err = capfd.readouterr()
    size = len(batch(0) + batch(5) + batch(6, 2))
    assert out.splitlines()[1].split() == ["a", "0", "0", "8", "3", "4", str(size)]
    assert "would import 4 records in 1 partitions of 1 topics" in err
    assert main(["import", str(tmp_path), "--dry-run", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)[0]["records"] == 4
    assert main(["import", str(tmp_path), "-b", "127.0.0.1:1", "--timeout", "1"]) == 1
    assert "cannot reach 127.0.0.1:1" in capfd.readouterr().err
    (tmp_path / "a-0" / f"{0:020d}.log").write_bytes(b"\1" * 100)
    (tmp_path / ".kafka_cleanshutdown").touch()
    assert main(["import", str(tmp_path), "-b", "127.0.0.1:1"]) == 1
    assert "nothing was imported" in capfd.readouterr().err
