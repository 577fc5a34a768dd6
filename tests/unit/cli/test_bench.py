"""`cairn bench`: figures of a load, the closing line that scripts parse, Kafka's flags and properties."""

from __future__ import annotations

import argparse
import re
import threading
from pathlib import Path

import pytest

from cairnmq.cli.bench import apply_properties, rate, read_properties
from cairnmq.cli.bench_figures import Figures, Took, closing_line, figures, percentiles, summary
from cairnmq.cli.bench_load import Settings, same_bytes, stamped
from cairnmq.cli.main import build_parser, main
from cairnmq.cli.terminal import UsageError
from cairnmq.codec.records import decode_batch
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import Message, MetadataRequest
from scripted_broker import ScriptedBroker, metadata


def test_percentiles_count_records_and_not_batches() -> None:
    assert percentiles([Took(5_000_000, 1), Took(1_000_000, 99)]) == {"50": 1.0, "95": 1.0, "99": 5.0, "99.9": 5.0}
    assert percentiles([Took(n * 1_000_000) for n in range(1000, 0, -1)]) == {
        "50": 501.0,
        "95": 951.0,
        "99": 991.0,
        "99.9": 1000.0,
    }
    assert percentiles([Took(3_000_000)]) == {"50": 3.0, "95": 3.0, "99": 3.0, "99.9": 3.0}
    assert percentiles([]) == {}


def test_the_closing_line_is_that_of_kafkas_tool() -> None:
    done = figures(1000, 2.0, [Took(2_000_000, 4000), Took(8_000_000, 96), Took(20_400_000, 4)])
    line = closing_line(done)
    assert line == (
        "4100 records sent, 2050.000000 records/sec (1.96 MB/sec), 2.16 ms avg latency, 20.40 ms max latency, "
        "2 ms 50th, 2 ms 95th, 8 ms 99th, 8 ms 99.9th."
    )
    kafka = r"\d+ records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, [\d.]+ ms max latency, "
    assert re.fullmatch(kafka + r"\d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\.", line)


def test_a_load_without_records_divides_by_nothing() -> None:
    assert closing_line(Figures(0, 0, 0.0)).startswith("0 records sent, 0.000000 records/sec (0.00 MB/sec)")
    assert "latency_ms" not in summary(Figures(5, 500, 1.0))


def test_kafkas_flags_work_with_and_without_the_action() -> None:
    flags = "--topic t --num-records 5 --record-size 10 --throughput -1 --producer-props acks=1 batch.size=100".split()
    for line in (["bench", *flags], ["bench", "produce", *flags]):
        chosen = build_parser("bench").parse_args(line)
        assert (chosen.topic, chosen.num_records, chosen.record_size, chosen.throughput) == ("t", 5, 10, None)
        assert chosen.producer_props == [("acks", "1"), ("batch.size", "100")]


def test_properties_become_our_flags() -> None:
    arguments = argparse.Namespace(bootstrap="a:1", acks="all", batch_size=1)
    apply_properties(arguments, {"bootstrap.servers": "b:2", "acks": "1", "batch.size": "77", "linger.ms": "5"})
    assert (arguments.bootstrap, arguments.acks, arguments.batch_size) == ("b:2", "1", 77)


@pytest.mark.parametrize("name_and_value", [("enable.idempotence", "true"), ("sasl.mechanism", "PLAIN"), ("acks", "7")])
def test_a_property_that_would_change_the_measurement_is_refused(name_and_value: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match="is not supported"):
        apply_properties(argparse.Namespace(), dict([name_and_value]))


def test_properties_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "producer.properties"
    path.write_text("# why\nacks = 1\n\nbatch.size=5\n")
    assert read_properties(str(path)) == {"acks": "1", "batch.size": "5"}
    assert read_properties(None) == {}


def test_a_rate_is_a_number_or_all() -> None:
    assert (rate("-1"), rate("2.5")) == (None, 2.5)
    for text in ("0", "-2", "1e12"):
        with pytest.raises(argparse.ArgumentTypeError):
            rate(text)


@pytest.mark.parametrize("line", ["bench e2e --throughput -1", "bench e2e -s 7", "bench produce --payload-file x"])
def test_wrong_usage_exits_2_before_anything_is_sent(line: str) -> None:
    try:
        code: int | str | None = main(line.split())
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2


def test_a_broker_that_goes_away_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """With acks=0 it is noticed by the next request, which finds a broken pipe: not that of stdout."""

    def script(request: Message, header: RequestHeader) -> Message | None:
        return metadata({"t": [1]}, {1: broker.port}) if isinstance(request, MetadataRequest) else None

    with ScriptedBroker(script) as broker:
        words = "bench produce --topic t --acks 0 --throughput 50 -n 1000 -s 10 -b".split()
        assert main([*words, broker.bootstrap]) == 1
        errors = capsys.readouterr().err
        assert errors.startswith(f"cairn: lost {broker.bootstrap} while sending: ")


@pytest.mark.parametrize("load", [["--throughput", "-1"], ["--throughput", "1000"]])
def test_a_broker_that_is_silent_is_given_up(load: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    def script(request: Message, header: RequestHeader) -> Message | bytes | None:
        if isinstance(request, MetadataRequest):
            return metadata({"t": [1]}, {1: broker.port})
        silence.wait(10)  # ends the command if it does not end by itself
        return None

    silence = threading.Event()
    with ScriptedBroker(script) as broker:
        words = "bench produce --topic t -n 100 -s 10 --timeout 0.3 -b".split()
        assert main([*words, broker.bootstrap, *load]) == 1
        silence.set()
        assert capsys.readouterr().err == f"cairn: {broker.bootstrap} did not respond for 0.3 s\n"


def test_batches_of_one_length_are_built_once_and_stamped_ones_carry_their_times() -> None:
    settings = Settings(record_bytes=50)
    make = same_bytes(settings)
    assert make([1, 2]) is make([3, 4])
    assert [len(record.value or b"") for record in decode_batch(make([1, 2]))] == [50, 50]
    values = [record.value or b"" for record in decode_batch(stamped(settings)([7, 9]))]
    assert [(int.from_bytes(value[:8], "big"), len(value)) for value in values] == [(7, 50), (9, 50)]


def test_a_batch_holds_what_its_bytes_allow_and_at_least_one_record() -> None:
    assert Settings(record_bytes=1000, batch_bytes=16384).batch_records == 16
    assert Settings(record_bytes=100_000, batch_bytes=16384).batch_records == 1
