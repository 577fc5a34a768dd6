"""Calls that only admin clients make: kafka-python has nearly all of them, librdkafka some. Java's tools run elsewhere.

Neither has client quotas; `tests/unit/broker/handlers/test_quotas.py` and the Java tools show those.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from interop.clients.contract import Refused

# Through the adapter, which keeps the import from warning about functions that Python deprecates.
from interop.clients.kafka_python import KafkaAdminClient, KafkaProducer, kafka
from interop.clients.kafkajs import KafkajsClient
from interop.clients.roster import PROGRAMS
from programs import require_program

admin = kafka.admin
SECONDS = 60.0
SECURITY_DISABLED = 54
INVALID_REQUEST = 42


@pytest.fixture
def python(bootstrap: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


@pytest.fixture
def librdkafka(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def place(topic: str, partition: int) -> Any:
    return kafka.TopicPartition(topic, partition)


def test_log_dirs_tell_sizes(python: Any, bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    producer.send(topic, os.urandom(5000), partition=1).get(SECONDS)
    producer.close()
    ((told,),) = ([row["log_dirs"][0]] for row in python.describe_log_dirs({topic: [0, 1]}))
    assert told["error_code"] == 0 and os.path.isabs(told["log_dir"])
    assert 0 < told["usable_bytes"] <= told["total_bytes"]
    (row,) = told["topics"]
    sizes = {each["partition_index"]: each["partition_size"] for each in row["partitions"]}
    assert row["name"] == topic and sizes[0] == 0 and 5000 < sizes[1] < 6000


def test_a_replica_stays_where_it_is(python: Any, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    (told,) = python.describe_log_dirs({topic: [0]})
    replica = (topic, 0, told["broker"])
    (answer,) = python.alter_replica_log_dirs({replica: told["log_dirs"][0]["log_dir"]}).values()
    assert answer is kafka.errors.NoError
    (answer,) = python.alter_replica_log_dirs({replica: "/nowhere"}).values()
    assert answer is kafka.errors.LogDirNotFoundError


def test_producers_of_a_partition(python: Any, bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    for _ in range(3):
        producer.send(topic, b"value").get(SECONDS)
    producer.close()
    (state,) = python.describe_producers([place(topic, 0)])[place(topic, 0)].active_producers
    assert state.producer_id >= 0 and state.last_sequence == 2
    assert (state.coordinator_epoch, state.current_transaction_start_offset) == (-1, -1)


def test_elections_are_not_needed(python: Any, librdkafka: AdminClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    answer = python.elect_leaders(0, {topic: [0, 1]}, raise_errors=False)
    (row,) = answer.replica_election_results
    assert [each.error_code for each in row.partition_result] == [84, 84]
    python.elect_leaders(0)
    elected = librdkafka.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(SECONDS)
    assert {error.name() for error in elected.values()} == {"ELECTION_NOT_NEEDED"}


def test_nothing_is_reassigned(python: Any, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    (told,) = python.describe_log_dirs({topic: [0]})
    wanted = {place(topic, 0): [told["broker"]], place(topic, 1): [told["broker"] + 1]}
    answers = python.alter_partition_reassignments(wanted)
    assert answers[place(topic, 0)] is None
    assert answers[place(topic, 1)] is kafka.errors.InvalidReplicationAssignmentError
    (cancelled,) = python.alter_partition_reassignments({place(topic, 0): None}).values()
    assert cancelled is kafka.errors.NoReassignmentInProgressError
    assert python.list_partition_reassignments() == {}


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")  # the older request is what this is about
def test_settings_are_replaced_as_a_whole(
    python: Any, librdkafka: AdminClient, new_topic: Callable[..., str], free_name: str
) -> None:
    topic = new_topic(**{"retention.ms": "5000"})
    whole = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config={"retention.bytes": "7000"})
    (altered,) = librdkafka.alter_configs([whole]).values()
    altered.result(SECONDS)
    (described,) = librdkafka.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    found = described.result(SECONDS)
    assert found["retention.bytes"].value == "7000" and found["retention.ms"].value != "5000"
    assert {entry.source for entry in found.values()} <= {1, 2, 3, 4, 5, 6}
    nowhere = ConfigResource(ConfigResource.Type.TOPIC, free_name, set_config={"retention.bytes": "7000"})
    (refused,) = librdkafka.alter_configs([nowhere]).values()
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        refused.result(SECONDS)
    assert python.list_config_resources(["topic"])["topic"].count(topic) == 1


def test_settings_of_groups(python: Any, librdkafka: AdminClient, free_name: str) -> None:
    kind = ConfigResource.Type.GROUP
    entry = ConfigEntry("consumer.session.timeout.ms", "50000", incremental_operation=AlterConfigOpType.SET)
    (altered,) = librdkafka.incremental_alter_configs(
        [ConfigResource(kind, free_name, incremental_configs=[entry])]
    ).values()
    altered.result(SECONDS)
    (described,) = librdkafka.describe_configs([ConfigResource(kind, free_name)]).values()
    assert described.result(SECONDS)["consumer.session.timeout.ms"].value == "50000"
    assert free_name in python.list_config_resources(["group"])["group"]
    wrong = ConfigEntry("consumer.session.timeout.ms", "1", incremental_operation=AlterConfigOpType.SET)
    (refused,) = librdkafka.incremental_alter_configs(
        [ConfigResource(kind, free_name, incremental_configs=[wrong])]
    ).values()
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        refused.result(SECONDS)


@pytest.mark.long  # the client is built
def test_kafkajs_alters_a_broker(bootstrap: str, new_topic: Callable[..., str]) -> None:
    """Its own tests set a topic's setting there, which Kafka keeps although it knows none of that name."""
    require_program(PROGRAMS["kafkajs"])
    client, topic = KafkajsClient(bootstrap), new_topic()

    def alter(**configs: str) -> dict[str, Any]:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        told = client.ask("alter_broker", topic=topic, configs=named)
        assert told["altered"] == 2
        return {entry["configName"]: entry for entry in told["entries"]}

    rows = alter(cleanup_policy="delete", message_max_bytes="2000000", background_threads="12")
    assert rows["cleanup.policy"]["configValue"] is None and rows["cleanup.policy"]["isSensitive"]
    assert [row["configValue"] for row in rows["message.max.bytes"]["configSynonyms"]] == ["2000000", "1048588"]
    assert rows["background.threads"]["configValue"] == "12"
    rows = alter()
    assert "cleanup.policy" not in rows and rows["message.max.bytes"]["configValue"] == "1048588"
    with pytest.raises(Refused) as refused:
        alter(num_partitions="3")
    assert refused.value.code == INVALID_REQUEST


def test_acls_need_an_authorizer(python: Any, librdkafka: AdminClient, free_name: str) -> None:
    words = (ResourceType.TOPIC, free_name, ResourcePatternType.LITERAL, "User:me", "*", AclOperation.READ)
    binding = AclBinding(*words, AclPermissionType.ALLOW)
    chosen = AclBindingFilter(*words, AclPermissionType.ALLOW)
    for future in (*librdkafka.create_acls([binding]).values(), *librdkafka.delete_acls([chosen]).values()):
        with pytest.raises(KafkaException) as refused:
            future.result(SECONDS)
        assert refused.value.args[0].code() == SECURITY_DISABLED
    # librdkafka's Python turns this refusal into an empty list.
    every = admin.ResourcePatternFilter(admin.ResourceType.ANY, None, admin.ACLResourcePatternType.ANY)
    with pytest.raises(kafka.errors.SecurityDisabledError):
        python.describe_acls(admin.ACLFilter(None, None, admin.ACLOperation.ANY, admin.ACLPermissionType.ANY, every))


def test_no_credentials_are_kept(python: Any, librdkafka: AdminClient) -> None:
    assert python.describe_user_scram_credentials() == {}
    (alice,) = librdkafka.describe_user_scram_credentials(["alice"]).values()
    with pytest.raises(KafkaException, match="RESOURCE_NOT_FOUND"):
        alice.result(SECONDS)


def test_features_and_quorum(python: Any) -> None:
    assert "transaction.version" in python.describe_features()
    with pytest.raises(kafka.errors.KafkaError):
        python.update_features({"transaction.version": 1})
    told = python.describe_metadata_quorum()
    (row,) = told["topics"]
    (partition,) = row["partitions"]
    (voter,) = partition["current_voters"]
    assert partition["error"] is None and partition["leader_id"] == voter["replica_id"]
    assert partition["high_watermark"] == voter["log_end_offset"] > 0


def test_the_cluster_and_its_topics(librdkafka: AdminClient, new_topic: Callable[..., str], replicas: int) -> None:
    cluster = librdkafka.describe_cluster(include_authorized_operations=True).result(SECONDS)
    assert len(cluster.nodes) == replicas and cluster.authorized_operations
    assert cluster.controller.id in {node.id for node in cluster.nodes}
    topic = new_topic(partitions=3)
    (described,) = librdkafka.describe_topics(TopicCollection([topic])).values()
    assert [len(each.isr) for each in described.result(SECONDS).partitions] == [replicas] * 3
