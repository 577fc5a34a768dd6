"""The table of handlers. Importing this imports every handler, so only the server does."""

from __future__ import annotations

from collections.abc import Callable

from cairnmq.broker.handlers import (
    acls,
    api_versions,
    cluster,
    config_resources,
    configs,
    consumer_groups,
    coordinators,
    credentials,
    elections,
    epochs,
    features,
    groups,
    journals,
    kept_offsets,
    list_offsets,
    log_dirs,
    offset_commits,
    offsets,
    producer_states,
    producers,
    quorum,
    quotas,
    reassignments,
    records,
    registrations,
    topics,
    transaction_states,
    transactions,
)
from cairnmq.broker.handlers.fetch import FetchHandler
from cairnmq.broker.handlers.metadata import MetadataHandler, describe_partitions
from cairnmq.broker.handlers.produce import ProduceHandler
from cairnmq.broker.requests.router import Router
from cairnmq.wire import apis

ABOUT_TOPICS = (
    apis.METADATA,
    apis.LIST_OFFSETS,
    apis.DELETE_TOPICS,
    apis.DELETE_RECORDS,
    apis.CREATE_PARTITIONS,
    apis.DESCRIBE_CONFIGS,
    apis.ALTER_CONFIGS,
    apis.INCREMENTAL_ALTER_CONFIGS,
    apis.LIST_CONFIG_RESOURCES,
    apis.DESCRIBE_CLIENT_QUOTAS,
    apis.DESCRIBE_LOG_DIRS,
    apis.DESCRIBE_PRODUCERS,
    apis.DESCRIBE_TOPIC_PARTITIONS,
    apis.ELECT_LEADERS,
    apis.ALTER_PARTITION_REASSIGNMENTS,
)
"""Answered from the metadata. A client that made a topic at one broker may ask the next one at once. Requests that move
records or offsets are not among them: their clients try again."""


def build_router(random_bits: Callable[[int], int]) -> Router:
    """Everything that is served, and therefore advertised if the key is Kafka's."""
    router = Router()
    router.add_raw(apis.PRODUCE, ProduceHandler().handle)
    router.add_raw(apis.FETCH, FetchHandler(random_bits).handle)
    router.add(apis.API_VERSIONS, api_versions.handle)
    router.add_raw(apis.METADATA, MetadataHandler().handle)
    router.add(apis.LIST_OFFSETS, list_offsets.handle)
    router.add(apis.OFFSET_COMMIT, offset_commits.commit)
    router.add(apis.OFFSET_FETCH, offsets.fetch)
    router.add(apis.FIND_COORDINATOR, coordinators.handle)
    router.add(apis.JOIN_GROUP, groups.join)
    router.add_raw(apis.HEARTBEAT, groups.heartbeat)
    router.add(apis.LEAVE_GROUP, groups.leave)
    router.add(apis.SYNC_GROUP, groups.sync)
    router.add(apis.DESCRIBE_GROUPS, groups.describe)
    router.add(apis.LIST_GROUPS, groups.list_groups)
    router.add(apis.CREATE_TOPICS, topics.create)
    router.add(apis.DELETE_TOPICS, topics.delete)
    router.add(apis.DELETE_RECORDS, records.handle)
    router.add(apis.INIT_PRODUCER_ID, producers.handle)
    router.add(apis.OFFSET_FOR_LEADER_EPOCH, epochs.handle)
    router.add(apis.ADD_PARTITIONS_TO_TXN, transactions.add_partitions)
    router.add(apis.ADD_OFFSETS_TO_TXN, transactions.add_offsets)
    router.add(apis.END_TXN, transactions.end)
    router.add(apis.WRITE_TXN_MARKERS, transactions.write_markers)
    router.add(apis.TXN_OFFSET_COMMIT, offset_commits.commit_in_transaction)
    router.add(apis.DESCRIBE_ACLS, acls.describe)
    router.add(apis.CREATE_ACLS, acls.create)
    router.add(apis.DELETE_ACLS, acls.delete)
    router.add(apis.DESCRIBE_CONFIGS, configs.describe)
    router.add(apis.ALTER_CONFIGS, configs.replace)
    router.add(apis.ALTER_REPLICA_LOG_DIRS, log_dirs.move)
    router.add(apis.DESCRIBE_LOG_DIRS, log_dirs.describe)
    router.add(apis.CREATE_PARTITIONS, topics.grow)
    router.add(apis.DELETE_GROUPS, groups.delete)
    router.add(apis.ELECT_LEADERS, elections.handle)
    router.add(apis.INCREMENTAL_ALTER_CONFIGS, configs.alter)
    router.add(apis.ALTER_PARTITION_REASSIGNMENTS, reassignments.alter)
    router.add(apis.LIST_PARTITION_REASSIGNMENTS, reassignments.show)
    router.add(apis.OFFSET_DELETE, groups.delete_offsets)
    router.add(apis.DESCRIBE_CLIENT_QUOTAS, quotas.describe)
    router.add(apis.ALTER_CLIENT_QUOTAS, quotas.alter)
    router.add(apis.DESCRIBE_USER_SCRAM_CREDENTIALS, credentials.handle)
    router.add(apis.DESCRIBE_QUORUM, quorum.handle)
    router.add(apis.UPDATE_FEATURES, features.handle)
    router.add(apis.DESCRIBE_CLUSTER, cluster.handle)
    router.add(apis.DESCRIBE_PRODUCERS, producer_states.handle)
    router.add(apis.DESCRIBE_TRANSACTIONS, transaction_states.describe)
    router.add(apis.LIST_TRANSACTIONS, transaction_states.list_transactions)
    router.add(apis.CONSUMER_GROUP_HEARTBEAT, consumer_groups.heartbeat)
    router.add(apis.CONSUMER_GROUP_DESCRIBE, consumer_groups.describe)
    router.add(apis.LIST_CONFIG_RESOURCES, config_resources.handle)
    router.add(apis.DESCRIBE_TOPIC_PARTITIONS, describe_partitions)
    router.add(apis.KEEP_OFFSETS, kept_offsets.handle)
    router.add(apis.DESCRIBE_JOURNALS, journals.handle)
    router.add(apis.ELECT_UNCLEAN, elections.elect_unclean)
    router.add(apis.FORGET_BROKER, registrations.forget)
    return router
