"""Options: what they mean, and the sentence for what they cannot."""

from __future__ import annotations

import pytest

from cairnmq.spark.errors import OptionError
from cairnmq.spark.options import BATCH_BYTES, COLUMNS, columns_of, read_options, write_options
from cairnmq.spark.position import Position

LEAST = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "a"}
SINK = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def test_the_defaults_of_a_batch_query() -> None:
    options = read_options(LEAST, stream=False)
    assert (options.starting, options.ending) == (Position("earliest"), Position("latest"))
    assert options.columns == COLUMNS
    assert options.read_committed and options.fail_on_data_loss
    assert (options.min_partitions, options.max_records, options.group) == (None, None, None)


def test_a_stream_begins_at_the_end() -> None:
    assert read_options(LEAST, stream=True).starting == Position("latest")


def test_how_long_an_answer_and_a_broker_are_waited_for() -> None:
    usual = write_options(SINK, stream=True).connection
    assert (usual.timeout, usual.patience) == (30, 120)
    changed = {"kafka.request.timeout.ms": "1500", "kafka.default.api.timeout.ms": "2500"}
    given = read_options({**LEAST, **changed}, stream=True).connection
    assert (given.timeout, given.patience) == (1.5, 2.5)


def test_names_are_read_in_any_case() -> None:
    """Spark hands options on in small letters at times."""
    options = read_options(
        {"KAFKA.bootstrap.SERVERS": "h:1", "SUBSCRIBE": "a, b,a", "MinPartitions": "4"}, stream=False
    )
    assert options.selection.topics == ("a", "b")
    assert options.min_partitions == 4


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"startingOfsets": "earliest"}, "unknown option startingOfsets; did you mean startingOffsets?"),
        ({"kafka.bootstrap.server": "x"}, "did you mean kafka.bootstrap.servers?"),
        ({"zzz": "1"}, "unknown option zzz"),
        ({"kafka.auto.offset.reset": "latest"}, "cannot be set"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "TLS and SASL are not supported yet"),
        ({"kafka.security.protocol": "SSL"}, "TLS and SASL are not supported yet"),
        ({"archive": "file:///x"}, "option archive is not supported yet"),
        ({"assign": '{"a": [0]}'}, "found subscribe and assign"),
        ({"path": "/x"}, "take no path"),
        ({"startingOffsets": "latest"}, "cannot be latest"),
        ({"startingOffsets": "newest"}, "startingOffsets is not valid"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "a-0 cannot be at -3"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "cannot be earliest"),
        ({"includeHeaders": "yes"}, "must be true or false"),
        ({"minPartitions": "0"}, "at least 1"),
        ({"minPartitions": "many"}, "whole number"),
        ({"columns": "key,vaule"}, "unknown column vaule; did you mean value?"),
        ({"columns": "key,key"}, "each column at most once"),
        ({"isolation": "serializable"}, "read_committed, read_uncommitted"),
        ({"maxOffsetsPerTrigger": "5"}, "option maxOffsetsPerTrigger is for a streaming query"),
        ({"maxBytesPerTrigger": "5"}, "option maxBytesPerTrigger is for a streaming query"),
        ({"group": "g"}, "option group is for a streaming query"),
        ({"subscribe": " "}, "option subscribe is empty"),
        ({"subscribe": " ,,"}, "option subscribe names no topic"),
    ],
)
def test_what_a_batch_query_is_told(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence.replace("?", r"\?")):
        read_options({**LEAST, **given}, stream=False)


def test_what_is_missing() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        read_options({"subscribe": "a"}, stream=False)
    with pytest.raises(OptionError, match="INSERT INTO"):
        read_options({}, stream=False)
    with pytest.raises(OptionError, match="found none of them"):
        read_options({"kafka.bootstrap.servers": "h:1"}, stream=False)
    with pytest.raises(OptionError, match="endingOffsets is for a batch query"):
        read_options({**LEAST, "endingOffsets": "latest"}, stream=True)


def test_other_ways_to_say_what_is_read() -> None:
    base = {"kafka.bootstrap.servers": "h:1"}
    assigned = read_options({**base, "assign": '{"a": [3, 1, 1], "b": [0]}'}, stream=False).selection.assigned
    assert assigned == {"a": (1, 3), "b": (0,)}
    assert read_options({**base, "subscribePattern": "a.*"}, stream=False).selection.pattern == "a.*"
    for bad in ({"assign": "a"}, {"assign": '{"a": [-1]}'}, {"assign": "{}"}, {"subscribePattern": "("}):
        with pytest.raises(OptionError):
            read_options({**base, **bad}, stream=False)


def test_a_time_goes_before_times_and_those_before_offsets() -> None:
    every = {"startingTimestamp": "7", "startingOffsetsByTimestamp": '{"a": {"0": 5}}', "startingOffsets": "earliest"}
    assert read_options({**LEAST, **every}, stream=False).starting == Position("timestamp", timestamp=7)
    del every["startingTimestamp"]
    assert read_options({**LEAST, **every}, stream=False).starting == Position("timestamps", {"a": {0: 5}})


def test_limits() -> None:
    given = {"maxOffsetsPerTrigger": "10", "minOffsetsPerTrigger": "3", "maxTriggerDelay": "90s"}
    limits = read_options({**LEAST, **given}, stream=True).limits
    assert (limits.max_offsets, limits.max_bytes, limits.min_offsets, limits.max_delay) == (10, None, 3, 90.0)
    for text, size in (("1000", 1000), ("10k", 10240), ("64m", 64 << 20), ("1 GB", 1 << 30), ("2t", 2 << 40)):
        assert read_options({**LEAST, "maxBytesPerTrigger": text}, stream=True).limits.max_bytes == size
    for text in ("0", "-1", "k", "1.5m", "1x"):
        with pytest.raises(OptionError, match="a number of bytes like 1000000 or 64m"):
            read_options({**LEAST, "maxBytesPerTrigger": text}, stream=True)
    delays = {"250ms": 0.25, "15m": 900.0, "2 min": 120.0, "2h": 7200.0, "1d": 86400.0, "1500": 1.5}
    for text, seconds in delays.items():
        found = read_options({**LEAST, "maxTriggerDelay": text}, stream=True).limits.max_delay
        assert found == pytest.approx(seconds)
    with pytest.raises(OptionError, match="a time like"):
        read_options({**LEAST, "maxTriggerDelay": "soon"}, stream=True)
    with pytest.raises(OptionError, match="minOffsetsPerTrigger 3 is more than maxOffsetsPerTrigger 2"):
        read_options({**LEAST, **given, "maxOffsetsPerTrigger": "2"}, stream=True)


def test_isolation_by_our_name_and_by_kafka_s() -> None:
    assert not read_options({**LEAST, "isolation": "read_uncommitted"}, stream=False).read_committed
    assert not read_options({**LEAST, "kafka.isolation.level": "read_uncommitted"}, stream=False).read_committed


def test_what_tunes_kafka_s_client_is_left_alone() -> None:
    given = {"kafka.fetch.min.bytes": "1", "kafkaConsumer.pollTimeoutMs": "512", "kafka.group.id": "g"}
    assert read_options({**LEAST, **given}, stream=False).group is None


def test_a_table_of_the_catalog_says_everything_twice_or_in_another_way() -> None:
    catalog = {**{f"option.{name}": text for name, text in LEAST.items()}, "provider": "cairnmq", "owner": "me"}
    for given in (catalog, {**LEAST, **catalog}):
        assert read_options(given, stream=False) == read_options(LEAST, stream=False)
    with pytest.raises(OptionError, match="unknown option"):
        read_options({**LEAST, "option.subscrib": "a"}, stream=False)


def test_columns() -> None:
    assert columns_of({**LEAST, "includeHeaders": "true"}) == (*COLUMNS, "headers")
    assert columns_of({**LEAST, "columns": "offset, value"}) == ("offset", "value")
    with pytest.raises(OptionError, match="unknown option"):
        columns_of({**LEAST, "include_headers": "true"})


def test_delivery() -> None:
    assert write_options(SINK, stream=True).delivery == "exactly_once"
    assert write_options(SINK, stream=False).delivery == "at_least_once"
    with pytest.raises(OptionError, match=r"needs kafka\.acks=all"):
        write_options({**SINK, "kafka.acks": "1"}, stream=True)
    with pytest.raises(OptionError, match="unknown option subscribe"):
        write_options(LEAST, stream=False)
    assert write_options({**SINK, "kafka.compression.type": "zstd"}, stream=False).codec == 4


def test_a_time_limit_leaves_time_to_write_and_to_commit() -> None:
    given = {**SINK, "kafka.transaction.timeout.ms": "59999"}
    with pytest.raises(OptionError, match=r"kafka\.transaction\.timeout\.ms must be at least 60000, not 59999"):
        write_options(given, stream=True)
    assert write_options(given, stream=False).delivery == "at_least_once", "there it means nothing"


def test_batches_as_small_as_a_topic_takes_them() -> None:
    def size(**given: str) -> int:
        return write_options(
            {**SINK, **{f"kafka.{name}": text for name, text in given.items()}}, stream=True
        ).batch_bytes

    assert size() == BATCH_BYTES
    assert 90_000 < size(**{"max.request.size": "100000"}) < 99_900, "with room for a header"
    assert size(**{"max.request.size": "10000000"}) == BATCH_BYTES
    assert size(**{"max.request.size": "1"}) == 1
    assert size(**{"batch.size": "0"}) == BATCH_BYTES, "tunes Kafka's client only"
