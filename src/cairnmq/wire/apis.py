"""The APIs we can read and write, the ones this broker serves, and which header versions their frames have."""

from __future__ import annotations

from msgspec import Struct

from cairnmq.wire import messages
from cairnmq.wire.messages import Message
from cairnmq.wire.notation import SHAPES


class Api(Struct, frozen=True):
    key: int
    name: str
    min: int
    max: int
    flexible_from: int | None

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from


APIS: dict[int, Api] = {
    shape.key: Api(
        key=shape.key,
        name=shape.name.removesuffix("Request"),
        min=shape.versions.first,
        max=shape.versions.last,
        flexible_from=shape.flexible_from,
    )
    for shape in SHAPES.values()
    if shape.key is not None and shape.name.endswith("Request")
}

# Keys by the names that Kafka's messages have.
PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS = range(11, 17)
CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH = range(19, 24)
TRANSACTIONS = range(24, 29)
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, WRITE_TXN_MARKERS, TXN_OFFSET_COMMIT = TRANSACTIONS
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, DESCRIBE_CONFIGS, ALTER_CONFIGS = range(29, 34)
ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS, CREATE_PARTITIONS = 34, 35, 37
DELETE_GROUPS, ELECT_LEADERS, INCREMENTAL_ALTER_CONFIGS = range(42, 45)
ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS, OFFSET_DELETE = range(45, 48)
DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS, DESCRIBE_USER_SCRAM_CREDENTIALS = range(48, 51)
DESCRIBE_QUORUM, UPDATE_FEATURES, DESCRIBE_CLUSTER, DESCRIBE_PRODUCERS = 55, 57, 60, 61
DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS, CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 65, 66, 68, 69
LIST_CONFIG_RESOURCES, DESCRIBE_TOPIC_PARTITIONS = 74, 75
KEEP_OFFSETS, DESCRIBE_JOURNALS, ELECT_UNCLEAN, FORGET_BROKER = range(20000, 20004)
INTERNAL_FROM = 20000  # keys of our own; Kafka's are far below. Both sides know the versions without asking.

# Produce is advertised from 0, as Kafka does: old librdkafka takes a higher minimum for a broker without compression.
# Versions 0-2 are not decoded; whoever sends them is disconnected.
SERVED: dict[int, tuple[int, int]] = {
    key: (0 if key == PRODUCE else APIS[key].min, APIS[key].max)
    for key in (
        *(PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS),
        *range(8, 17),
        *range(19, 36),
        37,
        *range(42, 51),
        *(55, 57, 60, 61, 65, 66, 68, 69, 74, 75),
    )
}

_REQUESTS: dict[int, type[Message]] = {key: getattr(messages, api.name + "Request") for key, api in APIS.items()}
_RESPONSES: dict[int, type[Message]] = {key: getattr(messages, api.name + "Response") for key, api in APIS.items()}


def request_class(key: int) -> type[Message]:
    return _REQUESTS[key]


def response_class(key: int) -> type[Message]:
    return _RESPONSES[key]


def request_header_version(key: int, version: int) -> int:
    """2 has a tag section; an API we do not know has a header we cannot know, and 1 is the one that all contain."""
    api = APIS.get(key)
    return 2 if api is not None and api.is_flexible(version) else 1


def response_header_version(key: int, version: int) -> int:
    """ApiVersions always answers with 0: its reader does not know yet which versions it may expect (KIP-511)."""
    return 1 if key != API_VERSIONS and APIS[key].is_flexible(version) else 0
