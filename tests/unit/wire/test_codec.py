"""Bytes written out by hand, where the encodings differ or a reader is easily wrong."""

from __future__ import annotations

import tracemalloc

import pytest

from cairnmq.types import Buffer
from cairnmq.wire.codec import Encoded, Malformed, decode, encode
from cairnmq.wire.messages import (
    AlterClientQuotasResponse,
    ApiVersionsResponse,
    ConsumerGroupHeartbeatResponse,
    ConsumerProtocolSubscription,
    DescribeGroupsRequest,
    DescribeTopicPartitionsRequest,
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    Message,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    SaslHandshakeRequest,
)


def written(message: Message, version: int) -> str:
    return b"".join(encode(message, version)).hex(" ")


def produce(records: object) -> ProduceRequest:
    partition = ProduceRequest.PartitionProduceData(3, records)  # type: ignore[arg-type]
    return ProduceRequest(None, -1, 30000, [ProduceRequest.TopicProduceData("t", partition_data=[partition])])


def test_legacy_produce() -> None:
    assert written(produce(b"abc"), 3) == (
        "ff ff ff ff 00 00 75 30 00 00 00 01 00 01 74 00 00 00 01 00 00 00 03 00 00 00 03 61 62 63"
    )


def test_compact_produce() -> None:
    assert written(produce(b"abc"), 9) == "00 ff ff 00 00 75 30 02 02 74 02 00 00 00 03 04 61 62 63 00 00 00"


def test_topic_ids_replace_names() -> None:
    request = produce(None)
    request.topic_data[0].topic_id = b"i" * 16
    assert written(request, 13) == "00 ff ff 00 00 75 30 02 " + "69 " * 16 + "02 00 00 00 03 00 00 00 00"
    read, _ = decode(ProduceRequest, 13, b"".join(encode(request, 13)))
    assert (read.topic_data[0].name, read.topic_data[0].topic_id) == ("", b"i" * 16)


def test_null_and_empty_are_told_apart() -> None:
    assert written(MetadataRequest(topics=None), 1) == "ff ff ff ff"
    assert written(MetadataRequest(topics=[]), 1) == "00 00 00 00"
    assert written(MetadataRequest(topics=None), 9) == "00 01 00 00 00"
    assert written(MetadataRequest(topics=[]), 9) == "01 01 00 00 00"
    for version in (1, 9):
        empty: list[MetadataRequest.MetadataRequestTopic] = []
        for topics in (None, empty):
            read, _ = decode(MetadataRequest, version, b"".join(encode(MetadataRequest(topics=topics), version)))
            assert read.topics == topics


@pytest.mark.parametrize("version", [3, 9])
def test_records_are_never_copied(version: int) -> None:
    frame = memoryview(b"".join(encode(produce(b"r" * 200), version)))
    request, _ = decode(ProduceRequest, version, frame)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame.obj
    assert any(piece is records for piece in encode(request, version))


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_records_in_several_buffers_go_out_as_they_are(version: int) -> None:
    pieces: list[Buffer] = [b"1" * 70, bytearray(b"2" * 70), memoryview(b"3" * 70)]
    partitions = [FetchResponse.PartitionData(number, records=pieces) for number in range(2)]
    out = encode(FetchResponse(responses=[FetchResponse.FetchableTopicResponse("t", partitions=partitions)]), version)
    assert [id(piece) for piece in out if len(piece) == 70] == [id(piece) for piece in pieces] * 2
    read, _ = decode(FetchResponse, version, b"".join(out))
    assert [p.records for p in read.responses[0].partitions] == [b"1" * 70 + b"2" * 70 + b"3" * 70] * 2


@pytest.mark.parametrize("size", [1, 126, 127, 128, 16382, 16383, 16384, 2097150, 2097151, 2097152])
@pytest.mark.parametrize("aborted", [None, [FetchResponse.AbortedTransaction(1, 2)]])
def test_records_of_every_width_of_length(size: int, aborted: list[FetchResponse.AbortedTransaction] | None) -> None:
    request = produce(bytes(size))
    assert decode(ProduceRequest, 9, b"".join(encode(request, 9)))[0] == request
    partition = FetchResponse.PartitionData(1, aborted_transactions=aborted, records=bytes(size))
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse("t", partitions=[partition])])
    assert decode(FetchResponse, 12, b"".join(encode(response, 12)))[0] == response


def test_no_records_need_no_buffers_of_their_own() -> None:
    partitions = [FetchResponse.PartitionData(0, records=None), FetchResponse.PartitionData(1, records=b"")]
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse("t", partitions=partitions)])
    assert len(encode(response, 12)) == 1
    read, _ = decode(FetchResponse, 12, encode(response, 12)[0])
    assert [p.records for p in read.responses[0].partitions] == [None, b""]


def test_tagged_fields_at_their_default_are_not_sent() -> None:
    quiet = ProduceResponse.PartitionProduceResponse(0)
    same = ProduceResponse.PartitionProduceResponse(0, current_leader=ProduceResponse.LeaderIdAndEpoch(-1, -1))
    one, other = (
        written(ProduceResponse([ProduceResponse.TopicProduceResponse("t", partition_responses=[p])]), 10)
        for p in (quiet, same)
    )
    assert one == other
    assert one.endswith("ff ff ff ff ff ff ff ff " * 2 + "01 00 00 00 00 00 00 00 00")


def test_tagged_fields_stand_in_ascending_order() -> None:
    partition = FetchResponse.PartitionData(
        current_leader=FetchResponse.LeaderIdAndEpoch(2, 9),
        diverging_epoch=FetchResponse.EpochEndOffset(8, 7),
        records=b"",
    )
    text = written(FetchResponse(responses=[FetchResponse.FetchableTopicResponse("t", partitions=[partition])]), 12)
    first = "00 0d 00 00 00 08 00 00 00 00 00 00 00 07 00"
    second = "01 09 00 00 00 02 00 00 00 09 00"
    assert f"02 {first} {second}" in text


def test_unknown_tags_are_stepped_over_at_every_level() -> None:
    plain = "00 ff ff 00 00 75 30 02 02 74 02 00 00 00 03 04 61 62 63 00 00 00"
    tagged = plain.removesuffix("00 00 00") + "01 05 02 aa bb" + "02 07 00 ff 01 01 cc" + "01 00 03 01 02 03"
    assert decode(ProduceRequest, 9, bytes.fromhex(tagged))[0] == decode(ProduceRequest, 9, bytes.fromhex(plain))[0]


def test_unknown_tags_are_stepped_over_between_known_ones() -> None:
    response = ApiVersionsResponse(finalized_features_epoch=4)
    known = written(response, 3)
    assert known == "00 00 01 00 00 00 00 01 01 08 00 00 00 00 00 00 00 04"
    mixed = "00 00 01 00 00 00 00 03 01 08 00 00 00 00 00 00 00 04 63 03 01 02 03 80 01 00"
    read, end = decode(ApiVersionsResponse, 3, bytes.fromhex(mixed))
    assert (read, end) == (response, len(bytes.fromhex(mixed)))


def test_a_tagged_field_longer_than_its_value_is_malformed() -> None:
    with pytest.raises(Malformed, match="finalized_features_epoch"):
        decode(ApiVersionsResponse, 3, bytes.fromhex("00 00 01 00 00 00 00 01 01 09 00 00 00 00 00 00 00 04 00"))


def test_nullable_structs() -> None:
    assert written(DescribeTopicPartitionsRequest(), 0) == "01 00 00 07 d0 ff 00"
    cursor = DescribeTopicPartitionsRequest.Cursor("t", 2)
    assert written(DescribeTopicPartitionsRequest(cursor=cursor), 0) == "01 00 00 07 d0 01 02 74 00 00 00 02 00 00"
    with pytest.raises(Malformed, match="bad presence byte"):
        decode(DescribeTopicPartitionsRequest, 0, bytes.fromhex("01 00 00 07 d0 02 02 74 00 00 00 02 00 00"))
    assert decode(ConsumerGroupHeartbeatResponse, 0, b"".join(encode(ConsumerGroupHeartbeatResponse(), 0)))[0] == (
        ConsumerGroupHeartbeatResponse(assignment=None)
    )


def test_never_flexible_messages() -> None:
    assert written(SaslHandshakeRequest("PLAIN"), 1) == "00 05 50 4c 41 49 4e"
    subscription = ConsumerProtocolSubscription(["t"], None, generation_id=4)
    assert written(subscription, 0) == "00 00 00 01 00 01 74 ff ff ff ff"
    assert written(subscription, 2).endswith("00 00 00 00 00 00 00 04")


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (0, "ff ff 00 00 00 00 00 00"),  # null group id
        (0, "ff fe 00 00 00 00 00 00"),
        (4, "00 00 00 00 00 01 00 00"),  # compact null
        (4, "80 80 80 80 80 01 00"),  # varint of six bytes
        (4, "ff ff ff ff ff 00"),
        (4, "ff ff ff ff 0f 00"),  # 4 GiB group id
        (0, "00 01 ff 00 00 00 00 00 00"),  # not UTF-8
        (4, "81 80 02" + "78" * 32768 + "00 00 00 00 01 00 00"),  # a string longer than a legacy one can be
        (4, "01 00 00 00 00 01 00 ff ff ff ff 0f"),  # 4 billion tags
    ],
)
def test_bad_lengths_are_malformed(version: int, body: str) -> None:
    with pytest.raises(Malformed):
        decode(HeartbeatRequest, version, bytes.fromhex(body))


def test_nullable_lengths_below_minus_one_are_malformed() -> None:
    for body in (
        "ff fe ff ff 00 00 00 00",
        "ff ff 00 01 00 00 00 00 00 00 00 01 00 01 74 00 00 00 01 00 00 00 00 ff ff ff fe",
    ):
        with pytest.raises(Malformed):
            decode(ProduceRequest, 3, bytes.fromhex(body))


@pytest.mark.parametrize(("version", "count"), [(11, b"\x7f\xff\xff\xff"), (12, b"\xff\xff\xff\xff\x07")])
def test_a_count_beyond_the_bytes_allocates_nothing(version: int, count: bytes) -> None:
    start = b"".join(encode(FetchRequest(), version))[:25]
    body = start + count + bytes(1000)
    tracemalloc.start()
    with pytest.raises(Malformed, match="more items than bytes"):
        decode(FetchRequest, version, body)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_versions_outside_the_table() -> None:
    with pytest.raises(Malformed, match="no version 2"):
        decode(ProduceRequest, 2, b"")
    with pytest.raises(ValueError, match="no version 99"):
        encode(ProduceRequest(), 99)


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (HeartbeatRequest(generation_id=2**31), 0),
        (HeartbeatRequest(group_id="x" * 32768), 0),
        (HeartbeatRequest(group_id="x" * 32768), 4),
        (MetadataRequest(topics=None), 0),
    ],
)
def test_what_cannot_be_said_is_an_error_of_the_caller(message: Message, version: int) -> None:
    with pytest.raises(ValueError):
        encode(message, version)


def test_the_longest_string_still_passes() -> None:
    for version in (0, 4):
        message = HeartbeatRequest(group_id="x" * 32767)
        assert decode(HeartbeatRequest, version, b"".join(encode(message, version)))[0] == message


def test_items_of_all_arrays_of_a_request_are_bounded() -> None:
    """They become objects many times their size: 100 MB of them would be all the memory there is."""
    topic = FetchRequest.FetchTopic(topic="t", partitions=[FetchRequest.FetchPartition()] * 25_000)
    for topics, is_fine in ((9, True), (10, False)):
        body = b"".join(encode(FetchRequest(topics=[topic] * topics), 12))
        if is_fine:
            assert len(decode(FetchRequest, 12, body)[0].topics) == topics
        else:
            with pytest.raises(Malformed, match="more than 250000 items"):
                decode(FetchRequest, 12, body)
    produced = ProduceRequest.TopicProduceData(
        name="t", partition_data=[ProduceRequest.PartitionProduceData()] * 250_001
    )
    with pytest.raises(Malformed, match="more than 250000 items"):
        decode(ProduceRequest, 9, b"".join(encode(ProduceRequest(topic_data=[produced]), 9)))
    with pytest.raises(Malformed, match="more than 250000 items"):
        decode(DescribeGroupsRequest, 5, b"".join(encode(DescribeGroupsRequest(groups=[""] * 250_001), 5)))


@pytest.mark.parametrize("version", range(4, 19))
def test_an_answer_may_be_encoded_in_pieces(version: int) -> None:
    partitions = [
        FetchResponse.PartitionData(number, records=[b"ab", b"c"] if number % 2 else b"") for number in range(4)
    ]
    topics = [FetchResponse.FetchableTopicResponse(f"t{number}", bytes(16), partitions) for number in range(200)]
    whole = b"".join(encode(FetchResponse(session_id=7, responses=topics), version))
    pieces = Encoded(FetchResponse, "responses", version)
    pieces.add(topics[:1])
    pieces.add([])
    pieces.add_from(encode(FetchResponse(responses=topics[1:150]), version), 149)
    pieces.add_from(encode(FetchResponse(responses=[]), version), 0)
    pieces.add(topics[150:])
    message = FetchResponse(session_id=7, responses=pieces)  # type: ignore[arg-type]
    assert b"".join(encode(message, version)) == whole


@pytest.mark.parametrize("version", range(14))
def test_an_answer_without_records_may_be_encoded_in_pieces(version: int) -> None:
    broker = MetadataResponse.MetadataResponseBroker(1, "here", 9092, None)
    topics = [MetadataResponse.MetadataResponseTopic(name=f"t{number}") for number in range(200)]
    whole = encode(MetadataResponse(brokers=[broker], cluster_id="c", topics=topics), version)
    pieces = Encoded(MetadataResponse, "topics", version)
    for topic in topics:
        pieces.add([topic])
    message = MetadataResponse(brokers=[broker], cluster_id="c", topics=pieces)  # type: ignore[arg-type]
    assert encode(message, version) == whole


@pytest.mark.parametrize("version", [0, 1])
def test_sentences_are_cut_however_long_the_text_is_that_they_quote(version: int) -> None:
    """Found by fuzzing: a name of 32,767 bytes in the sentence about it could not be sent."""
    answer = AlterClientQuotasResponse.EntryData(error_message=f"no such key: {'x' * 32767}", entity=[])
    body = b"".join(encode(AlterClientQuotasResponse(entries=[answer]), version))
    said = decode(AlterClientQuotasResponse, version, body)[0].entries[0].error_message
    assert said is not None and said.startswith("no such key: xxx") and len(said) == 1000


def test_shared_defaults_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        FetchResponse.PartitionData().current_leader.leader_id = 3  # type: ignore[misc]
    one, other = FetchRequest(), FetchRequest()
    one.topics.append(FetchRequest.FetchTopic())
    assert other.topics == []
