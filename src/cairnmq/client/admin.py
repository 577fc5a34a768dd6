"""Plans that administer: topics, partitions, configs, cluster. Pure; session.py says what a plan is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from cairnmq.client.errors import Refused
from cairnmq.client.session import Node, Plan, Session
from cairnmq.errors import ErrorCode
from cairnmq.types import TopicPartition
from cairnmq.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)  # operations of IncrementalAlterConfigs
TOPIC_SOURCE = 1  # a config that was set on the topic itself; every other source is inherited


class NewTopic(Struct, frozen=True):
    """What to create; -1 leaves the number to the broker."""

    name: str
    partitions: int = -1
    replicas: int = -1
    configs: dict[str, str] = {}


class Created(Struct, frozen=True):
    name: str
    partitions: int
    replicas: int


class Config(Struct, frozen=True):
    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    documentation: str | None


class Alteration(Struct, frozen=True):
    name: str
    operation: int
    value: str | None


class ClusterDescription(Struct, frozen=True):
    cluster_id: str
    controller: int
    nodes: tuple[Node, ...]


def create_topics(
    session: Session, topics: Sequence[NewTopic], timeout_ms: int, *, twice_is_harmless: bool = False
) -> Plan[dict[str, Created | Refused]]:
    """Creates each topic or says why not; one refusal does not stop the others. Who takes a topic that exists for as
    good may create it twice, as is done when an answer is lost."""
    rows = [
        CreateTopicsRequest.CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replicas,
            configs=[CreateTopicsRequest.CreatableTopicConfig(name=k, value=v) for k, v in topic.configs.items()],
        )
        for topic in topics
    ]
    request = CreateTopicsRequest(topics=rows, timeout_ms=timeout_ms)
    answer = yield from session.ask_until_answered(
        None, request, CreateTopicsResponse, twice_is_harmless=twice_is_harmless
    )
    return {
        row.name: Refused(row.error_code, f"topic {row.name}", row.error_message)
        if row.error_code
        else Created(row.name, row.num_partitions, row.replication_factor)
        for row in answer.topics
    }


def delete_topics(session: Session, names: Sequence[str], timeout_ms: int) -> Plan[dict[str, Refused | None]]:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in names],
        topic_names=list(names),
        timeout_ms=timeout_ms,
    )
    answer = yield from session.ask_until_answered(None, request, DeleteTopicsResponse, twice_is_harmless=False)
    session.forget()
    return {
        row.name or "": Refused(row.error_code, f"topic {row.name}", row.error_message) if row.error_code else None
        for row in answer.responses
    }


def create_partitions(session: Session, topic: str, count: int, timeout_ms: int) -> Plan[None]:
    """Raises the topic's number of partitions to `count`."""
    row = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[row], timeout_ms=timeout_ms)
    answer = yield from session.ask_until_answered(None, request, CreatePartitionsResponse, twice_is_harmless=False)
    session.forget()
    for result in answer.results:
        if result.error_code:
            raise Refused(result.error_code, f"topic {topic}", result.error_message)


def describe_configs(
    session: Session, resource: int, name: str, keys: Iterable[str] | None = None
) -> Plan[list[Config]]:
    wanted = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=resource, resource_name=name, configuration_keys=None if keys is None else list(keys)
    )
    request = DescribeConfigsRequest(resources=[wanted], include_documentation=True)
    node = int(name) if resource == BROKER_RESOURCE and name.isdecimal() else None
    answer = yield from session.ask_until_answered(node, request, DescribeConfigsResponse)
    found: list[Config] = []
    for result in answer.results:
        if result.error_code:
            raise Refused(result.error_code, _resource(resource, name), result.error_message)
        for row in result.configs:
            found.append(
                Config(row.name, row.value, row.config_source, row.read_only, row.is_sensitive, row.documentation)
            )
    return found


def incremental_alter_configs(session: Session, resource: int, name: str, changes: Sequence[Alteration]) -> Plan[None]:
    rows = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=c.name, config_operation=c.operation, value=c.value)
        for c in changes
    ]
    wanted = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=resource, resource_name=name, configs=rows
    )
    node = int(name) if resource == BROKER_RESOURCE and name.isdecimal() else None
    request = IncrementalAlterConfigsRequest(resources=[wanted])
    harmless = all(change.operation in (SET, DELETE) for change in changes)
    answer = yield from session.ask_until_answered(
        node, request, IncrementalAlterConfigsResponse, twice_is_harmless=harmless
    )
    for row in answer.responses:
        if row.error_code:
            raise Refused(row.error_code, _resource(resource, name), row.error_message)


def describe_cluster(session: Session) -> Plan[ClusterDescription]:
    answer = yield from session.ask_until_answered(None, DescribeClusterRequest(), DescribeClusterResponse)
    if answer.error_code:
        raise Refused(answer.error_code, "cluster", answer.error_message)
    nodes = tuple(Node(b.broker_id, b.host, b.port, b.rack) for b in answer.brokers)
    return ClusterDescription(answer.cluster_id, answer.controller_id, nodes)


def elect_preferred_leaders(session: Session, timeout_ms: int) -> Plan[dict[TopicPartition, Refused | None]]:
    """Of all partitions: those that the preferred broker leads since, or why it does not. Others are not named."""
    cluster = yield from session.metadata([])
    node = cluster.controller if cluster.controller in cluster.nodes else None
    request = ElectLeadersRequest(topic_partitions=None, timeout_ms=timeout_ms)
    answer = yield from session.ask_until_answered(node, request, ElectLeadersResponse)
    if answer.error_code:
        raise Refused(answer.error_code, "cluster")
    return {
        place: Refused(row.error_code, f"partition {place}", row.error_message) if row.error_code else None
        for topic in answer.replica_election_results
        for row in topic.partition_result
        for place in [TopicPartition(topic.topic, row.partition_id)]
        if row.error_code != ErrorCode.ELECTION_NOT_NEEDED
    }


def settings_as_changes(settings: Mapping[str, str], removed: Iterable[str]) -> list[Alteration]:
    return [
        *(Alteration(name, SET, value) for name, value in settings.items()),
        *(Alteration(name, DELETE, None) for name in removed),
    ]


def _resource(resource: int, name: str) -> str:
    if resource == TOPIC_RESOURCE:
        return f"topic {name}"
    return f"broker {name}" if name else "all brokers"
