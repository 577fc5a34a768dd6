"""What we say we serve, and the headers that go with it."""

from __future__ import annotations

import re

import pytest

from cairnmq.wire import apis
from cairnmq.wire.apis import (
    APIS,
    INTERNAL_FROM,
    SERVED,
    request_class,
    request_header_version,
    response_class,
    response_header_version,
)
from cairnmq.wire.messages import FetchRequest, FetchResponse


def test_every_key_has_the_name_of_its_message() -> None:
    named = {key: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", APIS[key].name).upper() for key in (*SERVED, apis.KEEP_OFFSETS)}
    assert {key: getattr(apis, name, None) for key, name in named.items()} == {key: key for key in named}


def test_served_versions() -> None:
    assert {APIS[key].name: versions for key, versions in SERVED.items()} == {
        "Produce": (0, 13),
        "Fetch": (4, 18),
        "ListOffsets": (1, 11),
        "Metadata": (0, 13),
        "OffsetCommit": (2, 10),
        "OffsetFetch": (1, 10),
        "FindCoordinator": (0, 6),
        "JoinGroup": (0, 9),
        "Heartbeat": (0, 4),
        "LeaveGroup": (0, 5),
        "SyncGroup": (0, 5),
        "DescribeGroups": (0, 6),
        "ListGroups": (0, 5),
        "ApiVersions": (0, 5),
        "CreateTopics": (2, 7),
        "DeleteTopics": (1, 6),
        "DeleteRecords": (0, 2),
        "InitProducerId": (0, 5),
        "OffsetForLeaderEpoch": (2, 4),
        "AddPartitionsToTxn": (0, 5),
        "AddOffsetsToTxn": (0, 4),
        "EndTxn": (0, 5),
        "WriteTxnMarkers": (1, 2),
        "TxnOffsetCommit": (0, 6),
        "DescribeAcls": (1, 3),
        "CreateAcls": (1, 3),
        "DeleteAcls": (1, 3),
        "DescribeConfigs": (1, 4),
        "AlterConfigs": (0, 2),
        "AlterReplicaLogDirs": (1, 2),
        "DescribeLogDirs": (1, 5),
        "CreatePartitions": (0, 3),
        "DeleteGroups": (0, 3),
        "ElectLeaders": (0, 2),
        "IncrementalAlterConfigs": (0, 1),
        "AlterPartitionReassignments": (0, 1),
        "ListPartitionReassignments": (0, 0),
        "OffsetDelete": (0, 0),
        "DescribeClientQuotas": (0, 1),
        "AlterClientQuotas": (0, 1),
        "DescribeUserScramCredentials": (0, 0),
        "DescribeQuorum": (0, 2),
        "UpdateFeatures": (0, 2),
        "DescribeCluster": (0, 2),
        "DescribeProducers": (0, 0),
        "DescribeTransactions": (0, 0),
        "ListTransactions": (0, 2),
        "ConsumerGroupHeartbeat": (0, 1),
        "ConsumerGroupDescribe": (0, 1),
        "ListConfigResources": (0, 1),
        "DescribeTopicPartitions": (0, 0),
    }


def test_only_produce_is_offered_below_what_is_decoded() -> None:
    assert {key for key, (lowest, _) in SERVED.items() if lowest != APIS[key].min} == {0}
    assert APIS[0].min == 3


def test_what_is_our_own_is_never_offered() -> None:
    own = [api.name for key, api in APIS.items() if key >= INTERNAL_FROM]
    assert own == ["KeepOffsets", "DescribeJournals", "ElectUnclean", "ForgetBroker"]
    assert all(key < INTERNAL_FROM for key in SERVED)


def test_every_api_has_both_classes() -> None:
    assert len([key for key in APIS if key < INTERNAL_FROM]) == 61
    for key, api in APIS.items():
        assert request_class(key).__name__ == api.name + "Request"
        assert response_class(key).__name__ == api.name + "Response"
    assert (request_class(1), response_class(1)) == (FetchRequest, FetchResponse)


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [(0, 8, 1, 0), (0, 9, 2, 1), (17, 1, 1, 0), (47, 0, 1, 0), (18, 2, 1, 0), (18, 3, 2, 0), (60, 0, 2, 1)],
)
def test_header_versions(key: int, version: int, request_header: int, response_header: int) -> None:
    assert request_header_version(key, version) == request_header
    assert response_header_version(key, version) == response_header
