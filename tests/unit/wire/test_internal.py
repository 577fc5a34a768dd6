"""Messages between brokers: bytes that stay as they are, fields that may be added, values that are refused."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Struct

from cairnmq.wire.internal import (
    RAW_BYTES_MAX,
    AcceptedTold,
    DivergingTold,
    Failed,
    FencedTold,
    GoneTold,
    Hello,
    JournalAsk,
    JournalTold,
    NotLeader,
    Prefix,
    Prove,
    ReplicaFetch,
    ReplicaFetched,
    StaleBrokerTold,
    UnknownEpochTold,
    Welcome,
    decode,
    encode,
    frame_head,
    read_prefix,
)
from cairnmq.wire.primitives import Malformed

HELLO = Hello("c", 1, 2, 3, "data", 1, 1, bytes(16), 4)
ASK = JournalAsk(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, True)
# A change of these bytes is a new version of the messages.
GOLDEN: list[tuple[Struct, str]] = [
    (HELLO, "99a163010203a4646174610101c4100000000000000000000000000000000004"),
    (Prove(b"p"), "91c40170"),
    (Welcome(1, b"p"), "9201c40170"),
    (Failed(3, "no"), "9203a26e6f"),
    (ReplicaFetch(500, 1024, [ASK]), "93cd01f4cd0400919d0102030405060708090a0b0cc3"),
    (
        ReplicaFetched(
            [
                JournalTold(1, AcceptedTold(1, 2, True, 3, 4), 4),
                JournalTold(2, DivergingTold(5, 6)),
                JournalTold(3, GoneTold(7)),
                JournalTold(4, FencedTold(8)),
                JournalTold(5, UnknownEpochTold()),
                JournalTold(6, StaleBrokerTold()),
                JournalTold(7, NotLeader(9)),
            ]
        ),
        "919793019600" + "0102c3030404" + "9302930105060093039202070093049203080093059104009306910500930792060900",
    ),
]


@pytest.mark.parametrize(("message", "golden"), GOLDEN, ids=lambda value: type(value).__name__)
def test_bytes_stay_as_they_are(message: Struct, golden: str) -> None:
    assert encode(message).hex() == golden
    assert decode(type(message), bytes.fromhex(golden)) == message


def test_a_request_of_a_broker_that_knows_nothing_of_readers() -> None:
    before = bytes.fromhex("93cd01f4cd0400919c0102030405060708090a0b0c")
    assert decode(ReplicaFetch, before).journals == [JournalAsk(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, False)]


def test_fields_of_later_versions_are_left_out() -> None:
    values = [*msgspec.msgpack.decode(encode(HELLO)), "later", 9]
    assert decode(Hello, encode(values)) == HELLO


def test_fields_of_earlier_versions_have_defaults() -> None:
    values = msgspec.msgpack.decode(encode(ASK))[:7]
    assert decode(ReplicaFetch, encode([0, 0, [values]])).journals == [JournalAsk(1, 2, 3, 4, 5, 6, 7)]


@pytest.mark.parametrize(
    ("message", "values"),
    [
        (ReplicaFetch, [60_001, 0, []]),
        (ReplicaFetch, [0, RAW_BYTES_MAX + 1, []]),
        (ReplicaFetch, [0, -1, []]),
        (ReplicaFetch, [0, 0, [[0, 1, 1, 1, -1, 1, 1]]]),
        (ReplicaFetch, [0, 0, [[0, 1, 1, 1, 1 << 63, 1, 1]]]),
        (ReplicaFetch, [0, 0, [[0, 1, 1, 1, 1, 1, 1]] * 4097]),
        (ReplicaFetched, [[[0, [7, 1], 0]]]),
        (ReplicaFetched, [[[0, [0, 1], 0]]]),
        (ReplicaFetched, [[[0, [2, 1], RAW_BYTES_MAX + 1]]]),
        (Hello, ["c", 1, 2, 3, "data", 1, 1, bytes(15)]),
        (Hello, ["c" * 1025, 1, 2, 3, "data", 1, 1, bytes(16)]),
        (Hello, ["c", 1 << 31, 2, 3, "data", 1, 1, bytes(16)]),
    ],
)
def test_values_out_of_bounds_are_refused(message: type[Struct], values: list[object]) -> None:
    with pytest.raises(Malformed, match=message.__name__):
        decode(message, encode(values))


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x99", b"\x91" * 100_000, b"\x91\xa1\xff", b"\xdd\xff\xff\xff\xff"])
@pytest.mark.parametrize("message", [Hello, ReplicaFetch, ReplicaFetched])
def test_other_bytes_are_refused(message: type[Struct], data: bytes) -> None:
    with pytest.raises(Malformed):
        decode(message, data)


def test_the_head_of_a_frame() -> None:
    head = frame_head(17, 0x01020304, b"abc", 5)
    assert head == bytes.fromhex("00000011110102030400000003") + b"abc"
    assert read_prefix(head) == Prefix(17, 0x01020304, 3, 5)


def test_a_header_longer_than_its_frame_is_refused() -> None:
    with pytest.raises(Malformed, match="cannot hold a header of 4"):
        read_prefix(bytes.fromhex("0000000c110102030400000004"))
