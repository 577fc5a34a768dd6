"""DescribeClientQuotas, AlterClientQuotas: quotas are kept and shown. Nothing enforces them yet; the log says so."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cairnmq.errors import ErrorCode, Fault, Refusal
from cairnmq.metadata.quotas import Match, QuotaChange, find_quotas
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

log = logging.getLogger(__name__)


def describe(ctx: Context, header: RequestHeader, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    matches = [Match(each.entity_type, each.match_type, each.match) for each in request.components]
    found = find_quotas(ctx.catalog.image, matches, request.strict)
    if isinstance(found, Refusal):
        # Java's admin client fails on null entries, also in an error.
        return DescribeClientQuotasResponse(error_code=found.code, error_message=found.message, entries=[])
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            DescribeClientQuotasResponse.EntryData(
                entity=[
                    DescribeClientQuotasResponse.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
                ],
                values=[DescribeClientQuotasResponse.ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in found
        ],
    )


async def alter(ctx: Context, header: RequestHeader, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    changes = [
        QuotaChange(
            tuple((part.entity_type, part.entity_name) for part in entry.entity),
            tuple((op.key, None if op.remove else op.value) for op in entry.ops),
        )
        for entry in request.entries
    ]
    try:
        answers = await ctx.catalog.alter_quotas(changes, validate_only=request.validate_only)
    except Fault as fault:
        answers = [Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(fault))] * len(changes)
    if None in answers and not request.validate_only:
        log.warning("client quotas changed: they are stored, but not enforced yet")
    return AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResponse.EntryData(
                error_code=ErrorCode.NONE if refusal is None else refusal.code,
                error_message=None if refusal is None else refusal.message,
                entity=[
                    AlterClientQuotasResponse.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in change.entity
                ],
            )
            for change, refusal in zip(changes, answers, strict=True)
        ]
    )
