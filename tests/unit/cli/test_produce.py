"""Lines to records: reading, keys, batches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cairnmq.cli.main import main
from cairnmq.cli.message_lines import split_line
from cairnmq.cli.produce import cut, read_lines
from cairnmq.client import blocking
from cairnmq.codec.records import Record, build_batch
from scripted_broker import Clock, ScriptedBroker, metadata


def lines_of(*writes: bytes) -> list[list[bytes]]:
    """What read_lines gives when its source is written to bit by bit."""
    read_end, write_end = os.pipe()
    found = []
    try:
        lines = read_lines(read_end)
        for data in writes:
            os.write(write_end, data)
            if b"\n" in data:
                found.append(next(lines))
        os.close(write_end)
        found.extend(lines)
    finally:
        os.close(read_end)
    return found


def test_a_line_is_given_as_soon_as_it_is_there() -> None:
    assert lines_of(b"one\n", b"two\nthr", b"ee\n\n") == [[b"one"], [b"two"], [b"three", b""]]


def test_the_last_line_needs_no_end() -> None:
    assert lines_of(b"one\ntwo") == [[b"one"], [b"two"]]
    assert lines_of(b"") == []


def test_windows_line_ends_go() -> None:
    assert lines_of(b"one\r\ntwo\r\n") == [[b"one", b"two"]]


def test_acks_0_does_not_count_what_could_not_be_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking, "time", Clock())
    lines = tmp_path / "lines"
    lines.write_text("one\n")
    with ScriptedBroker(lambda request, header: metadata({"t": [1]}, {1: 1})) as broker:
        words = ["produce", "t", "--acks", "0", "-f", str(lines), "-b", broker.bootstrap, "--timeout", "60"]
        assert main(words) == 1
    errors = capsys.readouterr().err
    assert "cannot reach 127.0.0.1:1" in errors and "0 messages are sent" in errors


def test_keys() -> None:
    assert split_line(b"a:b:c", None, b":") == (b"a", b"b:c")
    assert split_line(b"abc", None, b":") == (None, b"abc")
    assert split_line(b"a:b", b"key", None) == (b"key", b"a:b")
    assert split_line(b":b", None, b":") == (b"", b"b")


def test_batches_stay_below_the_limit_and_keep_the_order() -> None:
    records = [Record(0, 0, b"k" * (i % 40), b"v" * (i * 7 % 900), (("h", b"x" * 30),)) for i in range(500)]
    parts = list(cut(records, 10_000))
    assert [record for part in parts for record in part] == records
    assert all(len(build_batch(part)) <= 10_000 + 61 for part in parts)
    assert len(parts) < 60


def test_a_record_larger_than_a_batch_stands_alone() -> None:
    small, large = Record(0, 0, None, b"s"), Record(0, 0, None, bytes(5000))
    assert list(cut([small, large, small], 1000)) == [[small], [large], [small]]
