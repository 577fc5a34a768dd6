"""What is asked of a fresh broker to hold its answers against Apache Kafka's: admin calls, errors, ends, sequences.

`questions()` is a script: it yields requests in order and is sent the answers, so that whoever carries it out (over a
socket to Kafka, or inside a test) does the same. Answers are compared as `plain` gives them: without what no two
brokers have in common (ids, times, places, sentences) and without the order of what has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cairnmq.codec.records import Record, build_batch
from cairnmq.wire import messages as m
from golden.consumer_questions import consumers
from golden.question import Question, Script, newest, question
from golden.transaction_questions import transactions

STAMP = 1_700_000_000_000
SET, UNSET, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32

# Numbers, times and places that are a broker's own, and sentences.
OWN = frozenset(
    (
        "throttle_time_ms error_message batch_index_error_message topic_id cluster_id host port rack leader_epoch "
        "member_id leader client_host documentation producer_id log_dir total_bytes usable_bytes records "
        "log_append_time_ms log_end_offset last_fetch_timestamp last_caught_up_timestamp last_timestamp nodes "
        "transaction_start_time_ms coordinator_epoch"
    ).split()
)
NOT_YET = (14, 15, 16, 51)
QUORUM = m.DescribeQuorumResponse.PartitionData  # its high watermark is a count of changes


def plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, list | tuple):
        return sorted((plain(item) for item in value), key=str)
    if hasattr(value, "__struct_fields__"):
        own = OWN | {"high_watermark"} if isinstance(value, QUORUM) else OWN
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__ if name not in own}
    return value


def unsettled(told: Any) -> bool:
    """Whether to ask again: the coordinator is coming up, or a transaction is on its way to its end."""
    if isinstance(told, list):
        return any(map(unsettled, told))
    if isinstance(told, dict):
        return any(
            (name.endswith("error_code") and value in NOT_YET)
            or (name == "transaction_state" and str(value).startswith("Prepare"))
            or unsettled(value)
            for name, value in told.items()
        )
    return False


def questions() -> Script:
    yield from topics()
    yield from partitions()
    yield from settings()
    yield from quotas()
    yield from administration()
    yield from producing()
    yield from reading()
    yield from members()
    yield from consumers()
    yield from transactions()


def topics() -> Iterator[Question]:
    def create(label: str, name: str, count: int = 1, replicas: int = 1, **more: Any) -> Question:
        configs = [m.CreateTopicsRequest.CreatableTopicConfig(name=k, value=v) for k, v in more.get("configs", ())]
        placed = [
            m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=i, broker_ids=ids)
            for i, ids in more.get("placed", ())
        ]
        row = m.CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=count, replication_factor=replicas, configs=configs, assignments=placed
        )
        rows = [row] * more.get("times", 1)
        request = m.CreateTopicsRequest(topics=rows, timeout_ms=5000, validate_only=more.get("check", False))
        # Configs are compared where they are asked for; here Kafka tells of all it has.
        return question(label, 19, request, [4])

    yield create("a", "a", 2)
    yield create("b", "b", 2)
    yield create("again", "a")
    for name in ("b d", "", ".", "x" * 250):
        yield create(f"invalid name of {len(name)}", name)
    yield create("no partitions", "z", 0)
    yield create("-2 partitions", "z", -2)
    yield create("no replicas", "z", 1, 0)
    yield create("too many replicas", "z", 1, 2)
    yield create("defaults", "d", -1, -1)
    yield create("wrong value", "z", configs=[("retention.ms", "x")])
    yield create("unknown setting", "z", configs=[("foo", "x")])
    yield create("null value", "z", configs=[("retention.ms", None)])
    yield create("placed", "p", -1, -1, placed=[(0, [1]), (1, [1])])
    yield create("placed with a gap", "z", -1, -1, placed=[(1, [1])])
    yield create("placed and counted", "z", 1, 1, placed=[(0, [1])])
    yield create("placed nowhere", "z", -1, -1, placed=[(0, [])])
    yield create("placed twice on one", "z", -1, -1, placed=[(0, [1, 1])])
    yield create("placed on nobody", "z", -1, -1, placed=[(0, [5])])
    yield create("with a dot", "co.l")
    yield create("that collides", "co_l")
    yield create("only checked", "v", check=True)

    def metadata(label: str, names: list[str], versions: Sequence[int], **more: bool) -> Question:
        rows = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = m.MetadataRequest(topics=rows, allow_auto_topic_creation=False, **more)
        return question(label, 3, request, versions)

    yield metadata("one", ["a"], range(1, 14))
    yield metadata("none", [], range(1, 14))
    yield metadata("unknown", ["nowhere"], range(4, 14))
    yield metadata("twice", ["a", "a"], [1, 12, 13])
    yield metadata("operations", ["a"], [8, 9, 10], include_topic_authorized_operations=True)
    yield metadata("invalid", ["b d"], [4, 12, 13])
    by_id = m.MetadataRequest.MetadataRequestTopic(topic_id=b"\1" * 16, name=None)
    yield question("unknown id", 3, m.MetadataRequest(topics=[by_id], allow_auto_topic_creation=False), [12, 13])

    def describe(label: str, names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None) -> Question:
        at = None if cursor is None else m.DescribeTopicPartitionsRequest.Cursor(
            topic_name=cursor[0], partition_index=cursor[1]
        )  # fmt: skip
        rows = [m.DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names]
        return question(
            label, 75, m.DescribeTopicPartitionsRequest(topics=rows, response_partition_limit=limit, cursor=at)
        )

    yield describe("one", ["a"])
    yield describe("a page", ["a"], 1)
    yield describe("the next page", ["a"], 1, ("a", 1))
    yield describe("beyond", ["a"], 5, ("a", 9))
    yield describe("before", ["a"], 5, ("a", -1))


def partitions() -> Iterator[Question]:
    def grow(label: str, name: str, count: int, placed: list[list[int]] | None = None, check: bool = False) -> Question:
        given = None if placed is None else [
            m.CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=ids) for ids in placed
        ]  # fmt: skip
        row = m.CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=given)
        return newest(label, 37, m.CreatePartitionsRequest(topics=[row], timeout_ms=5000, validate_only=check))

    yield grow("as it is", "d", 1)
    yield grow("more", "d", 3)
    yield grow("less", "d", 2)
    yield grow("-1", "d", -1)
    yield grow("of nothing", "nowhere", 3)
    yield grow("placed", "d", 4, [[1]])
    yield grow("placed on nobody", "d", 5, [[7]])
    yield grow("too few places", "d", 6, [[1]])
    yield grow("only checked", "d", 9, None, True)
    yield newest("nothing", 37, m.CreatePartitionsRequest(timeout_ms=5000))

    def delete(label: str, name: str) -> Question:
        state = m.DeleteTopicsRequest.DeleteTopicState(name=name)
        return question(label, 20, m.DeleteTopicsRequest(topics=[state], topic_names=[name], timeout_ms=5000))

    yield delete("of nothing", "nowhere")
    yield delete("of what cannot be", "b d")
    unknown = m.DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=b"\3" * 16)
    yield newest("of an unknown id", 20, m.DeleteTopicsRequest(topics=[unknown], timeout_ms=5000))


def settings() -> Iterator[Question]:
    def change(label: str, kind: int, name: str, *rows: tuple[str, int, str | None], check: bool = False) -> Question:
        configs = [
            m.IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in rows
        ]
        row = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=configs
        )
        return question(label, 44, m.IncrementalAlterConfigsRequest(resources=[row], validate_only=check))

    yield change("of a topic", TOPIC, "a", ("retention.ms", SET, "9000000000000"))
    yield change("wrong value", TOPIC, "a", ("retention.ms", SET, "abc"))
    yield change("unknown setting", TOPIC, "a", ("no.such", SET, "1"))
    yield change("unknown setting unset", TOPIC, "a", ("no.such", UNSET, None))
    yield change("null", TOPIC, "a", ("retention.ms", SET, None))
    yield change("no list", TOPIC, "a", ("retention.ms", APPEND, "1"))
    yield change("taken from a list", TOPIC, "a", ("cleanup.policy", SUBTRACT, "compact"))
    yield change("twice", TOPIC, "a", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    yield change("of no topic", TOPIC, "nowhere", ("retention.ms", SET, "1"))
    yield change("of no possible topic", TOPIC, "b d", ("retention.ms", SET, "1"))
    yield change("only checked", TOPIC, "a", ("retention.ms", SET, "777"), check=True)
    yield change("nothing", TOPIC, "a")
    yield change("of the broker", BROKER, "1", ("log.retention.ms", SET, "9999999999999"))
    yield change("of all brokers", BROKER, "", ("log.retention.ms", SET, "9999999999998"))
    yield change("that needs a restart", BROKER, "1", ("num.partitions", SET, "3"))
    yield change("of the broker's id", BROKER, "1", ("node.id", SET, "3"))
    yield change("of another broker", BROKER, "7", ("log.retention.ms", SET, "3"))
    yield change("of no number", BROKER, "x", ("log.retention.ms", SET, "3"))
    yield change("of a group", GROUP, "g1", ("consumer.session.timeout.ms", SET, "50000"))
    yield change("of a group out of range", GROUP, "g1", ("consumer.session.timeout.ms", SET, "1"))
    yield change("of a group unknown", GROUP, "g1", ("no.such", SET, "1"))
    yield change("of no group", GROUP, "", ("consumer.session.timeout.ms", SET, "50000"))
    yield change("of what has none", 3, "x", ("a", SET, "b"))

    def replace(label: str, kind: int, name: str, *rows: tuple[str, str | None]) -> Question:
        configs = [m.AlterConfigsRequest.AlterableConfig(name=key, value=value) for key, value in rows]
        row = m.AlterConfigsRequest.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        return question(label, 33, m.AlterConfigsRequest(resources=[row]))

    yield replace("of a topic", TOPIC, "b", ("retention.bytes", "1000000"))
    yield replace("wrong value", TOPIC, "b", ("retention.ms", "x"))
    yield replace("null", TOPIC, "b", ("retention.ms", None))
    yield replace("unknown setting", TOPIC, "b", ("x.y", "x"))
    yield replace("twice", TOPIC, "b", ("retention.ms", "5"), ("retention.ms", "6"))
    yield replace("of no topic", TOPIC, "nowhere", ("retention.ms", "5"))
    yield replace("that needs a restart", BROKER, "1", ("num.partitions", "9"))
    yield replace("of a group", GROUP, "g2", ("consumer.session.timeout.ms", "50000"))
    yield replace("of a logger", LOGGER, "1", ("a", "INFO"))

    def show(label: str, kind: int, name: str, keys: list[str] | None) -> Question:
        row = m.DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=keys
        )
        return question(label, 32, m.DescribeConfigsRequest(resources=[row], include_synonyms=True))

    keys = ["retention.ms", "segment.bytes", "cleanup.policy", "max.message.bytes", "compression.type", "no.such"]
    yield show("of a topic", TOPIC, "a", keys)
    yield show("of another topic", TOPIC, "b", ["retention.ms", "retention.bytes"])
    yield show("of a topic unknown", TOPIC, "a", ["no.such"])
    yield show("of no topic", TOPIC, "nowhere", None)
    yield show("of no possible topic", TOPIC, "b d", None)
    yield show("of the broker", BROKER, "1", ["num.partitions", "log.cleanup.policy", "message.max.bytes"])
    yield show("of all brokers", BROKER, "", ["log.retention.ms"])
    yield show("of the broker beside all", BROKER, "1", ["log.retention.bytes"])
    yield show("of another broker", BROKER, "7", None)
    yield show("of a new group", GROUP, "gx", ["consumer.session.timeout.ms"])
    yield show("of no group", GROUP, "", None)
    yield show("of what has none", 3, "x", None)
    yield replace("of the broker that topics have", BROKER, "1", ("cleanup.policy", "delete"))
    yield change("of the broker that nobody knows", BROKER, "1", ("foo.bar", SET, "x"))
    yield change("of all brokers that nobody knows", BROKER, "", ("foo.bar", SET, "y"), ("foo.all", SET, "z"))
    yield change("of the broker that nobody knows, a list", BROKER, "1", ("foo.list", APPEND, "x"))
    yield change("of the broker that nobody knows, unset", BROKER, "1", ("foo.gone", UNSET, None))
    yield change("of the broker without a meaning here", BROKER, "1", ("background.threads", SET, "11"))
    yield change("of the broker without a meaning here, fixed", BROKER, "1", ("queued.max.requests", SET, "9"))
    yield show("of the broker that nobody knows", BROKER, "1", ["cleanup.policy", "foo.bar", "foo.all", "foo.gone"])
    yield show("of all brokers that nobody knows", BROKER, "", ["foo.bar"])


def quotas() -> Iterator[Question]:
    def change(label: str, entity: list[tuple[str, str | None]], *ops: tuple[str, float, bool]) -> Question:
        parts = [m.AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        rows = [m.AlterClientQuotasRequest.OpData(key=key, value=value, remove=gone) for key, value, gone in ops]
        entry = m.AlterClientQuotasRequest.EntryData(entity=parts, ops=rows)
        return question(label, 49, m.AlterClientQuotasRequest(entries=[entry]))

    yield change("of a user", [("user", "u")], ("producer_byte_rate", 1000.0, False))
    yield change("of a user's client", [("client-id", "c"), ("user", "u")], ("consumer_byte_rate", 1000.0, False))
    yield change("of every user", [("user", None)], ("request_percentage", 50.5, False))
    yield change("of an address", [("ip", "10.0.0.1")], ("connection_creation_rate", 5.0, False))
    yield change("a fraction", [("user", "u")], ("producer_byte_rate", 10.5, False))
    yield change("below 0", [("user", "u")], ("producer_byte_rate", -1.0, False))
    yield change("0", [("user", "u")], ("producer_byte_rate", 0.0, False))
    yield change("unknown", [("user", "u")], ("foo", 1.0, False))
    yield change("of what has none", [("host", "u")], ("producer_byte_rate", 1.0, False))
    yield change("without a name", [("user", "")], ("producer_byte_rate", 1.0, False))
    yield change("of nobody", [], ("producer_byte_rate", 1.0, False))
    yield change("of no address", [("ip", "10.x")], ("connection_creation_rate", 5.0, False))
    yield change("of an address, wrong", [("ip", "10.0.0.1")], ("producer_byte_rate", 5.0, False))
    yield change("of a user, wrong", [("user", "a")], ("connection_creation_rate", 5.0, False))
    yield change("unset", [("user", "zz")], ("producer_byte_rate", 0.0, True))

    def find(label: str, *rows: tuple[str, int, str | None], strict: bool = False) -> Question:
        parts = [
            m.DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=match, match=name)
            for kind, match, name in rows
        ]
        return question(label, 48, m.DescribeClientQuotasRequest(components=parts, strict=strict))

    yield find("all")
    yield find("all, strictly", strict=True)
    yield find("of any user", ("user", 2, None))
    yield find("of any user alone", ("user", 2, None), strict=True)
    yield find("of a user", ("user", 0, "u"))
    yield find("of every user", ("user", 1, None))
    yield find("of a user's client", ("user", 0, "u"), ("client-id", 0, "c"))
    yield find("of addresses", ("ip", 2, None))


def administration() -> Iterator[Question]:
    yield question(
        "all", 29, m.DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    )
    acl = m.CreateAclsRequest.AclCreation(
        resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
    )
    yield question("one", 30, m.CreateAclsRequest(creations=[acl]))
    chosen = m.DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    )
    yield question("all", 31, m.DeleteAclsRequest(filters=[chosen]))

    for kind in (0, 1, 5):
        asked = [
            m.ElectLeadersRequest.TopicPartitions(topic="a", partitions=[0, 9]),
            m.ElectLeadersRequest.TopicPartitions(topic="nowhere", partitions=[0]),
        ]
        yield question(
            f"of type {kind}",
            43,
            m.ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=5000),
        )

    def move(label: str, name: str, index: int, replicas: list[int] | None) -> Question:
        row = m.AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=replicas)
        topic = m.AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=[row])
        return question(label, 45, m.AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=5000))

    yield move("where it is", "a", 0, [1])
    yield move("cancelled", "a", 0, None)
    for replicas in ([], [1, 1], [2], [1, 2], [-1]):
        yield move(f"to {replicas}", "a", 0, replicas)
    yield move("of nothing", "nowhere", 0, [1])
    yield move("of no partition", "a", 9, [1])
    yield question("all", 46, m.ListPartitionReassignmentsRequest(topics=None, timeout_ms=5000))

    update = m.UpdateFeaturesRequest.FeatureUpdateKey(feature="nope", max_version_level=1)
    yield question("unknown", 57, m.UpdateFeaturesRequest(feature_updates=[update]))
    yield question("nothing", 57, m.UpdateFeaturesRequest())
    name = m.DescribeUserScramCredentialsRequest.UserName
    yield question("all", 50, m.DescribeUserScramCredentialsRequest(users=None))
    yield question("some", 50, m.DescribeUserScramCredentialsRequest(users=[name(name="x"), name(name="y")]))
    yield question("twice", 50, m.DescribeUserScramCredentialsRequest(users=[name(name="x"), name(name="x")]))
    row = m.DescribeQuorumRequest.PartitionData(partition_index=0)
    quorum = m.DescribeQuorumRequest.TopicData(topic_name="__cluster_metadata", partitions=[row])
    yield question("of metadata", 55, m.DescribeQuorumRequest(topics=[quorum]))
    yield question("of metrics", 74, m.ListConfigResourcesRequest(), [0])
    yield question("of brokers and groups", 74, m.ListConfigResourcesRequest(resource_types=[BROKER, GROUP]), [1])
    yield question("of topics", 74, m.ListConfigResourcesRequest(resource_types=[TOPIC]), [1])
    yield question("of what nobody knows", 74, m.ListConfigResourcesRequest(resource_types=[2, 99]), [1])
    topic = m.DescribeLogDirsRequest.DescribableLogDirTopic
    asked_for = [topic(topic="a", partitions=[0, 9]), topic(topic="nowhere", partitions=[0])]
    yield question("some", 35, m.DescribeLogDirsRequest(topics=asked_for))
    yield question("none", 35, m.DescribeLogDirsRequest(topics=[]))
    there = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name="a", partitions=[0, 9])
    elsewhere = m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path="/nowhere", topics=[there])
    yield question("elsewhere", 34, m.AlterReplicaLogDirsRequest(dirs=[elsewhere]))
    for kind in (1, 2, 9):
        request = m.DescribeClusterRequest(endpoint_type=kind, include_cluster_authorized_operations=True)
        yield question(f"of type {kind}", 60, request, [1] if kind != 1 else [0, 1])


def batch(*values: bytes, **fields: int) -> bytes:
    return bytes(build_batch([Record(i, STAMP + i, None, value, ()) for i, value in enumerate(values)], **fields))


def producing() -> Iterator[Question]:
    def send(label: str, records: bytes | None, name: str = "a", partition: int = 0, acks: int = -1) -> Question:
        data = m.ProduceRequest.PartitionProduceData(index=partition, records=records)
        topic = m.ProduceRequest.TopicProduceData(name=name, partition_data=[data])
        return question(label, 0, m.ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[topic]), [3, 7, 12])

    def numbered(sequence: int, epoch: int = 0) -> bytes:
        return batch(b"z", producer_id=7000, producer_epoch=epoch, base_sequence=sequence)

    whole = batch(b"a", b"b", b"c")
    yield send("well", whole)
    yield send("damaged", whole[:-1] + b"?")
    yield send("old format", whole[:16] + b"\1" + whole[17:])
    yield send("two batches", whole + whole)
    yield send("empty", b"")
    yield send("cut", whole[:-3])
    yield send("no header", whole[:30])
    yield send("to nowhere", whole, "nowhere")
    yield send("to no partition", whole, "a", 99)
    yield send("acks 2", whole, acks=2)
    yield send("too large", batch(b"x" * 2_000_000))
    yield send("no sequence", numbered(-1))
    for label, sequence, epoch in (
        ("begins anywhere", 5, 0), ("again", 5, 0), ("gap", 8, 0), ("new epoch in the middle", 5, 1),
        ("new epoch", 0, 1), ("old epoch", 6, 0),
    ):  # fmt: skip
        yield send(label, numbered(sequence, epoch))
    yield from wrong_records(send)
    topic = m.DescribeProducersRequest.TopicRequest
    asked = [topic(name="a", partition_indexes=[0, 1, 9]), topic(name="nowhere", partition_indexes=[0])]
    yield question("some", 61, m.DescribeProducersRequest(topics=asked))
    yield question("fresh", 22, m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))


def wrong_records(send: Callable[[str, bytes, str], Question]) -> Iterator[Question]:
    """Batches that are refused because of some of their records, which are named (KIP-467)."""
    policies = {"keyed": ("cleanup.policy", "compact"), "timed": ("message.timestamp.before.max.ms", "1000")}
    for name, (key, value) in policies.items():
        config = m.CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
        row = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=[config])
        yield question(f"for {name} records", 19, m.CreateTopicsRequest(topics=[row], timeout_ms=5000), [4])

    def mixed(*records: tuple[int, bytes | None], codec: int = 0) -> bytes:
        return bytes(build_batch([Record(0, timestamp, key, b"v") for timestamp, key in records], codec=codec))

    old, ahead, none = 5, 1 << 50, -1
    for codec in (0, 1):
        yield send(
            f"without keys, codec {codec}", mixed((STAMP, None), (STAMP, b"k"), (STAMP, None), codec=codec), "keyed"
        )
        yield send(
            f"ahead of time, codec {codec}", mixed((STAMP, None), (ahead, None), (STAMP, None), codec=codec), "a"
        )
        yield send(f"too old, codec {codec}", mixed((old, None), (none, None), (old, b"k"), codec=codec), "timed")
    yield send("without a key", mixed((STAMP, b"k"), (STAMP, None)), "keyed")
    yield send("without a key or ahead of time", mixed((STAMP, None), (ahead, b"k"), (ahead, None)), "keyed")
    yield send("with keys", mixed((STAMP, b"k"), (STAMP, b"")), "keyed")


def reading() -> Iterator[Question]:
    def look(label: str, timestamp: int, name: str = "a", partition: int = 0, epoch: int = -1) -> Question:
        row = m.ListOffsetsRequest.ListOffsetsPartition(
            partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
        )
        topic = m.ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[row])
        return question(label, 2, m.ListOffsetsRequest(topics=[topic], timeout_ms=5000), range(1, 11))

    for special in range(-7, 0):
        yield look(f"special {special}", special)
    yield look("at a time", STAMP + 1)
    yield look("in the future", STAMP * 2)
    yield look("latest of nothing yet", -1, partition=1)
    yield look("at a time, nothing yet", 0, partition=1)
    yield look("of nothing", -1, "nowhere")
    yield look("of no partition", -1, partition=77)
    yield look("of a later leader", -1, epoch=99)

    def fetch(label: str, offset: int, versions: Sequence[int] = (4, 7, 11, 12), **more: int) -> Question:
        row = m.FetchRequest.FetchPartition(
            partition=more.pop("partition", 0),
            fetch_offset=offset,
            partition_max_bytes=1 << 20,
            current_leader_epoch=more.pop("epoch", -1),
        )
        topic = m.FetchRequest.FetchTopic(topic="nowhere" if more.pop("nowhere", 0) else "a", partitions=[row])
        request = m.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[topic])
        request.session_epoch = more.pop("session_epoch", -1)
        for name, value in more.items():
            setattr(request, name, value)
        return question(label, 1, request, versions)

    yield fetch("from the start", 0)
    yield fetch("inside a batch", 1)
    yield fetch("beyond", 10**6, (4,))
    yield fetch("below", -5, (4,))
    yield fetch("committed only", 0, isolation_level=1)
    yield fetch("of nothing", 0, nowhere=1)
    yield fetch("of no partition", 0, partition=99)
    yield fetch("of a later leader", 0, (11, 12), epoch=99)
    yield fetch("of an unknown session", 0, (7, 12), session_id=77, session_epoch=1)
    yield fetch("without a session, epoch 1", 0, (7, 12), session_id=0, session_epoch=1)

    def ended(label: str, epoch: int, current: int = -1, name: str = "a", partition: int = 0) -> Question:
        row = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
            partition=partition, current_leader_epoch=current, leader_epoch=epoch
        )
        topic = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=name, partitions=[row])
        return question(label, 23, m.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]))

    yield ended("later", 99)
    yield ended("none", -1)
    yield ended("of a later leader", 0, 99)
    yield ended("of nothing", 0, -1, "nowhere")
    yield ended("of no partition", 0, -1, "a", 9)

    def trim(label: str, offset: int, name: str = "a", partition: int = 0) -> Question:
        row = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
        topic = m.DeleteRecordsRequest.DeleteRecordsTopic(name=name, partitions=[row])
        return newest(label, 21, m.DeleteRecordsRequest(topics=[topic], timeout_ms=5000))

    yield trim("some", 2)
    yield trim("back", 1)
    yield trim("beyond", 10**6)
    yield trim("-2", -2)
    yield trim("of nothing", 1, "nowhere")
    yield trim("of no partition", 1, "a", 9)
    yield trim("all", -1)
    for policy in ("compact", "compact,delete"):
        setting = m.CreateTopicsRequest.CreatableTopicConfig(name="cleanup.policy", value=policy)
        made = m.CreateTopicsRequest.CreatableTopic(
            name=policy.replace(",", "-"), num_partitions=1, replication_factor=1, configs=[setting]
        )
        yield question(policy, 19, m.CreateTopicsRequest(topics=[made], timeout_ms=5000), [4])
        yield trim(f"of {policy}", 0, made.name)
        yield trim(f"of {policy}, beyond", 9, made.name)
        yield trim(f"of {policy}, no partition", 0, made.name, 9)


def members() -> Script:
    """One group through its states, and what is asked from outside."""

    def join(label: str, group: str, member_id: str = "", versions: Sequence[int] = range(10), **more: Any) -> Question:
        protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
        request = m.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=more.get("session", 30_000),
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type=more.get("type", "consumer"),
            protocols=[protocol] * more.get("protocols", 1),
        )
        return question(label, 11, request, versions)

    yield join("no group", "")
    yield join("unknown id", "nobody", "zz")
    yield join("short session", "gs", session=10)
    yield join("no type", "gs", type="")
    yield join("no protocols", "gs", protocols=0)
    given: Any = yield join("first", "g", versions=[9])
    joined: Any = yield join("second", "g", given.member_id, versions=[9])
    own = joined.member_id

    def beat(label: str, group: str = "g", generation: int = 1, member_id: str = own) -> Question:
        return question(label, 12, m.HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id))

    def describe(label: str, group: str) -> Question:
        return question(label, 15, m.DescribeGroupsRequest(groups=[group]))

    def sync(label: str, versions: Sequence[int] = (5,), **more: Any) -> Question:
        part = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=own, assignment=b"a")
        request = m.SyncGroupRequest(
            group_id="g",
            generation_id=more.get("generation", 1),
            member_id=more.get("member_id", own),
            protocol_type=more.get("type", "consumer"),
            protocol_name=more.get("name", "range"),
            assignments=[part],
        )
        return question(label, 14, request, versions)

    yield beat("while assigning")
    yield describe("while assigning", "g")
    yield sync("other generation", generation=9)
    yield sync("unknown id", member_id="zz")
    yield sync("other type", type="x")
    yield sync("other protocol", name="y")
    yield sync("well", range(6))
    yield beat("stable")
    yield beat("other generation", generation=7)
    yield beat("unknown id", member_id="q")
    yield beat("unknown group", "nobody")
    yield beat("no group", "")
    yield describe("stable", "g")
    yield describe("missing", "nobody")

    def commit(label: str, group: str, generation: int = -1, member_id: str = "", **more: Any) -> Question:
        row = m.OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=more.get("partition", 0), committed_offset=5, committed_metadata=more.get("metadata", "x")
        )
        topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name=more.get("name", "a"), partitions=[row])
        request = m.OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=generation, member_id=member_id, topics=[topic]
        )
        return question(label, 8, request, [2, 5, 7, 9])

    yield commit("from outside", "g")
    yield commit("by a member", "g", 1, own)
    yield commit("other generation", "g", 5, own)
    yield commit("unknown id", "g", 1, "q")
    yield commit("alone", "s")
    yield commit("of nothing", "s", name="nowhere")
    yield commit("of no partition", "s", partition=77)
    yield commit("long metadata", "s", metadata="x" * 5000)
    yield commit("a generation of nobody", "nobody", 3, "q")
    yield commit("no group", "")

    def fetch(label: str, group: str, names: list[tuple[str, list[int]]] | None) -> Iterator[Question]:
        old = None if names is None else [
            m.OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=ids) for name, ids in names
        ]  # fmt: skip
        new = None if names is None else [
            m.OffsetFetchRequest.OffsetFetchRequestTopics(name=name, partition_indexes=ids) for name, ids in names
        ]  # fmt: skip
        yield question(label, 9, m.OffsetFetchRequest(group_id=group, topics=old), range(2, 8))
        row = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=new)
        yield question(label, 9, m.OffsetFetchRequest(groups=[row]), [8, 9])

    yield from fetch("some", "s", [("a", [0, 1])])
    yield from fetch("all", "s", None)
    yield from fetch("none", "s", [])
    yield from fetch("of nothing", "s", [("nowhere", [0])])
    yield from fetch("of an unknown group", "nobody", [("a", [0])])
    yield from fetch("all of an unknown group", "nobody", None)
    yield from fetch("of no group", "", [("a", [0])])
    yield question("stable", 16, m.ListGroupsRequest(states_filter=["Stable"]), [4, 5])
    yield question("of an unknown type", 16, m.ListGroupsRequest(types_filter=["xx"]), [5])
    yield question("some", 42, m.DeleteGroupsRequest(groups_names=["g", "nobody"]))

    def forget(label: str, group: str, name: str = "a", partition: int = 0) -> Question:
        row = m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=partition)
        topic = m.OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=[row])
        return question(label, 47, m.OffsetDeleteRequest(group_id=group, topics=[topic]))

    yield forget("of an unknown group", "nobody")
    yield forget("of nothing", "s", "nowhere")
    yield forget("of no partition", "s", "a", 66)
    yield forget("not committed", "s", "b")

    def leave(label: str, group: str, *ids: tuple[str, str | None], versions: Sequence[int] = (3, 4, 5)) -> Question:
        rows = [m.LeaveGroupRequest.MemberIdentity(member_id=a, group_instance_id=b) for a, b in ids]
        return question(label, 13, m.LeaveGroupRequest(group_id=group, member_id="q", members=rows), versions)

    yield leave("unknown id", "g", ("q", None), versions=range(6))
    yield leave("unknown group", "nobody", ("q", None), versions=range(6))
    yield leave("unknown static member", "g", ("", "i"))
    yield leave("nobody", "g")
    yield leave("the last", "g", (own, None), versions=[5])
    yield describe("empty", "g")
