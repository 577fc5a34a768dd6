"""DescribeConfigs and IncrementalAlterConfigs, for topics and for brokers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cairnmq.errors import ErrorCode, Fault, Refusal
from cairnmq.metadata.topics import check_name
from cairnmq.settings.alteration import ConfigChange
from cairnmq.settings.broker import describe_broker
from cairnmq.settings.definition import ConfigEntry, ConfigSource
from cairnmq.settings.topic import describe_topic
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from cairnmq.wire.messages import (
    _DescribeConfigsRequestDescribeConfigsResource as Resource,
)
from cairnmq.wire.messages import (
    _DescribeConfigsResponseDescribeConfigsResourceResult as Row,
)
from cairnmq.wire.messages import (
    _DescribeConfigsResponseDescribeConfigsResult as Described,
)
from cairnmq.wire.messages import (
    _IncrementalAlterConfigsResponseAlterConfigsResourceResponse as Altered,
)

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

_TOPIC, _BROKER = 2, 4


def describe(ctx: Context, header: RequestHeader, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        entries = _entries(ctx, resource)
        if isinstance(entries, Refusal):
            results.append(
                Described(
                    error_code=entries.code,
                    error_message=entries.message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
            continue
        keys = resource.configuration_keys
        rows = [
            _row(entry, request.include_synonyms, request.include_documentation)
            for entry in entries
            if not keys or entry.name in keys
        ]
        results.append(
            Described(
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=rows,
            )
        )
    return DescribeConfigsResponse(results=results)


def _entries(ctx: Context, resource: Resource) -> list[ConfigEntry] | Refusal:
    name = resource.resource_name
    if resource.resource_type == _TOPIC:
        topic = ctx.catalog.image.topic(name)
        if topic is None:
            return check_name(name) or _no_topic(name)
        return describe_topic(topic.configs, ctx.config)
    if resource.resource_type == _BROKER:
        node_id = _node_id(ctx, name)
        if isinstance(node_id, Refusal):
            return node_id
        entries = describe_broker(ctx.config)
        if node_id is None:
            # The defaults for all brokers: only what was set there, as Kafka shows it.
            default = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
            return [entry for entry in entries if any(synonym.source == default for synonym in entry.synonyms)]
        return entries
    return _unsupported(resource.resource_type)


def _row(entry: ConfigEntry, synonyms: bool, documentation: bool) -> Row:
    return Row(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsResponse.DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in (entry.synonyms if synonyms else ())
        ],
        config_type=entry.type,
        documentation=entry.doc if documentation else None,
    )


async def alter(
    ctx: Context, header: RequestHeader, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    named = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    results = []
    for resource in request.resources:
        if named[resource.resource_type, resource.resource_name] > 1:
            refusal: Refusal | None = Refusal(ErrorCode.INVALID_REQUEST, "the resource is named more than once")
        else:
            changes = [ConfigChange(each.name, each.config_operation, each.value) for each in resource.configs]
            refusal = await _alter(ctx, resource.resource_type, resource.resource_name, changes, request.validate_only)
        results.append(
            Altered(
                error_code=ErrorCode.NONE if refusal is None else refusal.code,
                error_message=None if refusal is None else refusal.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return IncrementalAlterConfigsResponse(responses=results)


async def _alter(
    ctx: Context, resource_type: int, name: str, changes: list[ConfigChange], validate_only: bool
) -> Refusal | None:
    try:
        if resource_type == _TOPIC:
            return await ctx.catalog.alter_configs(name, changes, validate_only=validate_only)
        if resource_type == _BROKER:
            node_id = _node_id(ctx, name)
            if isinstance(node_id, Refusal):
                return node_id
            return await ctx.catalog.alter_broker_configs(node_id, changes, validate_only=validate_only)
    except Fault as fault:
        return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(fault))
    return _unsupported(resource_type)


def _node_id(ctx: Context, name: str) -> int | None | Refusal:
    """None: the defaults of all brokers."""
    if name == "":
        return None
    if name == str(ctx.node.node_id):
        return ctx.node.node_id
    return Refusal(ErrorCode.INVALID_REQUEST, f"there is no broker {name!r} here; this is broker {ctx.node.node_id}")


def _no_topic(name: str) -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")


def _unsupported(resource_type: int) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, f"configs of resource type {resource_type} are not supported")
