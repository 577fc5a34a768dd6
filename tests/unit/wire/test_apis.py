"""What we say we serve, and the headers that go with it."""

from __future__ import annotations

import pytest

from cairnmq.wire.apis import (
    APIS,
    SERVED,
    request_class,
    request_header_version,
    response_class,
    response_header_version,
)
from cairnmq.wire.messages import FetchRequest, FetchResponse


def test_served_versions() -> None:
    assert {APIS[key].name: versions for key, versions in SERVED.items()} == {
        "Produce": (0, 13),
        "Fetch": (4, 18),
        "ListOffsets": (1, 11),
        "Metadata": (0, 13),
        "OffsetCommit": (2, 10),
        "OffsetFetch": (1, 10),
        "FindCoordinator": (0, 6),
        "ApiVersions": (0, 4),
        "CreateTopics": (2, 7),
        "DeleteTopics": (1, 6),
        "DeleteRecords": (0, 2),
        "InitProducerId": (0, 5),
        "OffsetForLeaderEpoch": (2, 4),
        "DescribeConfigs": (1, 4),
        "CreatePartitions": (0, 3),
        "IncrementalAlterConfigs": (0, 1),
        "DescribeCluster": (0, 2),
        "DescribeTopicPartitions": (0, 0),
    }


def test_only_produce_is_offered_below_what_is_decoded() -> None:
    assert {key for key, (lowest, _) in SERVED.items() if lowest != APIS[key].min} == {0}
    assert APIS[0].min == 3


def test_every_api_has_both_classes() -> None:
    assert len(APIS) == 61
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
