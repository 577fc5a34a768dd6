"""DescribeConfigs, IncrementalAlterConfigs and AlterConfigs, for topics, brokers and groups."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from msgspec import structs

from cairnmq.errors import ErrorCode, Fault, Refusal
from cairnmq.metadata.groups import check_group
from cairnmq.metadata.topics import check_name
from cairnmq.settings.alteration import ConfigChange, Operation
from cairnmq.settings.broker import describe_broker
from cairnmq.settings.broker_table import current_name
from cairnmq.settings.definition import ConfigEntry, ConfigSource
from cairnmq.settings.group import describe_group
from cairnmq.settings.topic import describe_topic
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

Resource: TypeAlias = DescribeConfigsRequest.DescribeConfigsResource
Row: TypeAlias = DescribeConfigsResponse.DescribeConfigsResourceResult
Described: TypeAlias = DescribeConfigsResponse.DescribeConfigsResult
Altered: TypeAlias = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
Replaced: TypeAlias = AlterConfigsResponse.AlterConfigsResourceResponse
Answer = TypeVar("Answer", Altered, Replaced)

_TOPIC, _BROKER, _GROUP = 2, 4, 32
_TWICE = Refusal(ErrorCode.INVALID_REQUEST, "the resource is named more than once")


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
        keys = {current_name(key) for key in resource.configuration_keys or ()}
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
        if node_id not in (None, ctx.node.node_id):
            return _stored(ctx, node_id)
        if node_id is None:
            return [own for entry in entries if (own := _default_of_all_brokers(entry)) is not None]
        return entries
    if resource.resource_type == _GROUP:
        # Any group may have settings, also one that nobody has joined yet.
        configs = ctx.catalog.image.group_configs.get(name, {})
        return check_group(name) or describe_group(configs, ctx.config)
    return _unsupported(resource.resource_type)


def _stored(ctx: Context, node_id: int | None) -> list[ConfigEntry]:
    """What is set at run time for another broker. What it was started with, only that broker knows."""
    layers = structs.replace(ctx.config.layers, dynamic=ctx.catalog.image.dynamic_configs(node_id))
    return [
        entry
        for entry in describe_broker(structs.replace(ctx.config, layers=layers))
        if entry.source in (ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    ]


def _default_of_all_brokers(entry: ConfigEntry) -> ConfigEntry | None:
    """As it was set for all brokers, whatever this one has of its own; None if it was not."""
    for synonym in entry.synonyms:
        if synonym.source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG:
            return structs.replace(entry, value=synonym.value, source=synonym.source, synonyms=(synonym,))
    return None


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
    wanted = [
        _Wanted(
            resource.resource_type,
            resource.resource_name,
            [ConfigChange(each.name, each.config_operation, each.value) for each in resource.configs],
        )
        for resource in request.resources
    ]
    return IncrementalAlterConfigsResponse(
        responses=await _alter_each(ctx, wanted, Altered, request.validate_only, whole=False)
    )


async def replace(ctx: Context, header: RequestHeader, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Every setting that is not sent goes back to its default; that is why Kafka made the incremental call."""
    wanted = [
        _Wanted(
            resource.resource_type,
            resource.resource_name,
            [ConfigChange(each.name, Operation.SET, each.value) for each in resource.configs],
        )
        for resource in request.resources
    ]
    return AlterConfigsResponse(responses=await _alter_each(ctx, wanted, Replaced, request.validate_only, whole=True))


class _Wanted(NamedTuple):
    """What a request asks of one resource."""

    resource_type: int
    name: str
    changes: list[ConfigChange]


async def _alter_each(
    ctx: Context, wanted: list[_Wanted], answer: type[Answer], validate_only: bool, *, whole: bool
) -> list[Answer]:
    named = Counter((each.resource_type, each.name) for each in wanted)
    answers = []
    for each in wanted:
        if named[each.resource_type, each.name] > 1:
            refusal: Refusal | None = _TWICE
        else:
            refusal = await _alter(ctx, *each, validate_only, whole=whole)
        answers.append(
            answer(
                error_code=ErrorCode.NONE if refusal is None else refusal.code,
                error_message=None if refusal is None else refusal.message,
                resource_type=each.resource_type,
                resource_name=each.name,
            )
        )
    return answers


async def _alter(
    ctx: Context,
    resource_type: int,
    name: str,
    changes: list[ConfigChange],
    validate_only: bool,
    *,
    whole: bool,
) -> Refusal | None:
    try:
        if resource_type == _TOPIC:
            return await ctx.catalog.alter_configs(name, changes, whole=whole, validate_only=validate_only)
        if resource_type == _GROUP:
            return await ctx.catalog.alter_group_configs(name, changes, whole=whole, validate_only=validate_only)
        if resource_type == _BROKER:
            node_id = _node_id(ctx, name)
            if isinstance(node_id, Refusal):
                return node_id
            return await ctx.catalog.alter_broker_configs(node_id, changes, whole=whole, validate_only=validate_only)
    except Fault as fault:
        return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(fault))
    return _unsupported(resource_type)


def _node_id(ctx: Context, name: str) -> int | None | Refusal:
    """None: the defaults of all brokers."""
    if name == "":
        return None
    for broker in ctx.leadership.brokers:
        if name == str(broker.node_id):
            return broker.node_id
    return Refusal(ErrorCode.INVALID_REQUEST, f"there is no broker {name!r} here; this is broker {ctx.node.node_id}")


def _no_topic(name: str) -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")


def _unsupported(resource_type: int) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, f"configs of resource type {resource_type} are not supported")
