"""Transaction markers: Kafka's bytes, and which of them a queue takes."""

from __future__ import annotations

import pytest

from cairnmq.codec.batch import set_offset_and_epoch
from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.storage.batches.markers import Marker, check_marker, marker_batch, read_marker
from cairnmq.storage.files.format import ProducerRow

# Kafka's layout, written out: offset 3, leader epoch 0, time 1700000000000, producer 5/1, an ABORT by coordinator epoch
# 7. tests/apache_kafka/test_transaction_files.py compares with a real Kafka's.
KAFKAS = (
    "0000000000000003 00000042 00000000 02 CRC 0030 00000000 0000018bcfe56800 0000018bcfe56800 "
    "0000000000000005 0001 ffffffff 00000001 20 00 00 00 08 00000000 0c 000000000007 00"
)


def test_the_bytes_are_kafkas() -> None:
    made = marker_batch(Marker(9, 5, 1, False, 7), 1_700_000_000_000)
    set_offset_and_epoch(made, 3, 0)
    assert made == bytes.fromhex(KAFKAS.replace("CRC", made[17:21].hex()))


@pytest.mark.parametrize("commit", [True, False])
def test_they_read_back(commit: bool) -> None:
    assert read_marker(marker_batch(Marker(9, 5, 1, commit, 7), 10)) == (commit, 7)


def test_a_marker_that_others_laid_out() -> None:
    record = Record(0, 10, b"\0\0\0\1", b"\0\0\0\0\0\7", (("h", b"v"),), control=True)
    assert read_marker(build_batch([record], transactional=True)) == (True, 7)
    leader_change = Record(0, 10, b"\0\0\0\2", b"", control=True)
    assert read_marker(build_batch([leader_change])) is None
    assert read_marker(build_batch([Record(0, 10, b"\0", None, control=True)])) is None
    assert read_marker(bytes(70)) is None


OWN = 6  # the epoch of the coordinator that there is


def verdict(known: ProducerRow | None, epoch: int, coordinator: int = 3, version: int = 1) -> bool | ErrorCode:
    found = check_marker(known, Marker(1, 5, epoch, True, coordinator, version), OWN)
    return found.code if isinstance(found, Refusal) else found


OPEN = ProducerRow(5, 4, 0, ((0, 0, 9),), 3, 9)
RESTING = ProducerRow(5, 4, 0, ((0, 0, 9),), 3, -1)
ABSURD = ProducerRow(5, 4, 0, ((0, 0, 9),), 2**31 - 1, 9)  # somebody could once say so


@pytest.mark.parametrize(
    ("known", "epoch", "coordinator", "version", "expected"),
    [
        (None, 0, 0, 1, True),  # fences older epochs
        (OPEN, 4, 3, 1, True),
        (OPEN, 5, 3, 2, True),
        (OPEN, 5, 3, 1, True),  # a time limit aborts with a higher epoch
        (OPEN, 3, 3, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (OPEN, 4, 2, 1, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (OPEN, 4, 3, 2, ErrorCode.INVALID_PRODUCER_EPOCH),  # late: a later transaction is open
        (RESTING, 4, 3, 1, False),
        (RESTING, 4, 3, 2, False),
        (RESTING, 5, 3, 2, True),
        (RESTING, 3, 3, 2, ErrorCode.INVALID_PRODUCER_EPOCH),
        (OPEN, 4, OWN, 1, True),
        (OPEN, 4, OWN + 1, 1, ErrorCode.TRANSACTION_COORDINATOR_FENCED),  # of the future
        (None, 0, OWN + 1, 1, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (ABSURD, 4, OWN, 1, True),
        (ABSURD, 4, OWN - 1, 1, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (ABSURD, 4, 2**31 - 1, 1, True),  # as DescribeProducers tells it to an administrator
    ],
)
def test_which_are_taken(
    known: ProducerRow | None, epoch: int, coordinator: int, version: int, expected: bool | ErrorCode
) -> None:
    assert verdict(known, epoch, coordinator, version) == expected


@pytest.mark.parametrize(
    ("known", "epoch", "coordinator", "expected"),
    [
        (None, 0, 0, True),
        (OPEN, 4, 3, True),
        (OPEN, 4, 2**20, True),  # a coordinator's journal has epochs of its own
        (OPEN, 4, 2, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (RESTING, 4, 2, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (RESTING, 4, 3, False),
        (RESTING, 4, 4, True),  # from now on it fences the coordinator before, whose marker may come late
    ],
)
def test_of_several_coordinators_the_queue_knows_the_last(
    known: ProducerRow | None, epoch: int, coordinator: int, expected: bool | ErrorCode
) -> None:
    found = check_marker(known, Marker(1, 5, epoch, True, coordinator), None)
    assert (found.code if isinstance(found, Refusal) else found) == expected
