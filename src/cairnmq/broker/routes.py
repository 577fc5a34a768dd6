"""The table of handlers. Importing this imports every handler, so only the server does."""

from __future__ import annotations

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
    kept_offsets,
    list_offsets,
    log_dirs,
    offsets,
    produce,
    producer_states,
    producers,
    quorum,
    quotas,
    reassignments,
    records,
    topics,
    transaction_states,
    transactional_offsets,
    transactions,
)
from cairnmq.broker.handlers.fetch import FetchHandler
from cairnmq.broker.handlers.log_dirs import LogDirsHandler
from cairnmq.broker.handlers.metadata import MetadataHandler, describe_partitions
from cairnmq.broker.router import Router
from cairnmq.wire.apis import API_VERSIONS, FETCH, KEEP_OFFSETS, LIST_OFFSETS, METADATA, PRODUCE


def build_router() -> Router:
    """Everything that is served, and therefore advertised if the key is Kafka's."""
    router = Router()
    router.add_raw(PRODUCE, produce.handle)
    router.add_raw(FETCH, FetchHandler().handle)
    router.add(API_VERSIONS, api_versions.handle)
    router.add_raw(METADATA, MetadataHandler().handle)
    router.add(LIST_OFFSETS, list_offsets.handle)
    router.add(8, offsets.commit)
    router.add(9, offsets.fetch)
    router.add(10, coordinators.handle)
    router.add(11, groups.join)
    router.add_raw(12, groups.heartbeat)
    router.add(13, groups.leave)
    router.add(14, groups.sync)
    router.add(15, groups.describe)
    router.add(16, groups.list_groups)
    router.add(19, topics.create)
    router.add(20, topics.delete)
    router.add(21, records.handle)
    router.add(22, producers.handle)
    router.add(23, epochs.handle)
    router.add(24, transactions.add_partitions)
    router.add(25, transactions.add_offsets)
    router.add(26, transactions.end)
    router.add(27, transactions.write_markers)
    router.add(28, transactional_offsets.commit)
    router.add(29, acls.describe)
    router.add(30, acls.create)
    router.add(31, acls.delete)
    router.add(32, configs.describe)
    router.add(33, configs.replace)
    router.add(34, log_dirs.move)
    router.add(35, LogDirsHandler().describe)
    router.add(37, topics.grow)
    router.add(42, groups.delete)
    router.add(43, elections.handle)
    router.add(44, configs.alter)
    router.add(45, reassignments.alter)
    router.add(46, reassignments.show)
    router.add(47, groups.delete_offsets)
    router.add(48, quotas.describe)
    router.add(49, quotas.alter)
    router.add(50, credentials.handle)
    router.add(55, quorum.handle)
    router.add(57, features.handle)
    router.add(60, cluster.handle)
    router.add(61, producer_states.handle)
    router.add(65, transaction_states.describe)
    router.add(66, transaction_states.list_transactions)
    router.add(68, consumer_groups.heartbeat)
    router.add(69, consumer_groups.describe)
    router.add(74, config_resources.handle)
    router.add(75, describe_partitions)
    router.add(KEEP_OFFSETS, kept_offsets.handle)
    return router
