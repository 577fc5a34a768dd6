"""The table of handlers. Importing this imports every handler, so only the server does."""

from __future__ import annotations

from cairnmq.broker.handlers import (
    api_versions,
    cluster,
    configs,
    coordinators,
    epochs,
    list_offsets,
    offsets,
    produce,
    producers,
    records,
    topics,
)
from cairnmq.broker.handlers.fetch import FetchHandler
from cairnmq.broker.handlers.metadata import MetadataHandler, describe_partitions
from cairnmq.broker.router import Router
from cairnmq.wire.apis import API_VERSIONS, FETCH, LIST_OFFSETS, METADATA, PRODUCE


def build_router() -> Router:
    """Everything that is served and therefore advertised."""
    router = Router()
    router.add_raw(PRODUCE, produce.handle)
    router.add_raw(FETCH, FetchHandler().handle)
    router.add(API_VERSIONS, api_versions.handle)
    router.add_raw(METADATA, MetadataHandler().handle)
    router.add(LIST_OFFSETS, list_offsets.handle)
    router.add(8, offsets.commit)
    router.add(9, offsets.fetch)
    router.add(10, coordinators.handle)
    router.add(19, topics.create)
    router.add(20, topics.delete)
    router.add(21, records.handle)
    router.add(22, producers.handle)
    router.add(23, epochs.handle)
    router.add(32, configs.describe)
    router.add(37, topics.grow)
    router.add(44, configs.alter)
    router.add(60, cluster.handle)
    router.add(75, describe_partitions)
    return router
