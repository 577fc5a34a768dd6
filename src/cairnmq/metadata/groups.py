"""The decision that changes a group's settings, and how they are stored. Pure.

They outlive the group, as in Kafka: a group that does not exist may have settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.metadata.image import Image
from cairnmq.metadata.keys import level, unlevel
from cairnmq.metadata.store import Delete, Op, Put
from cairnmq.settings.alteration import ConfigChange, Operation, alter, replacement
from cairnmq.settings.definition import Setting
from cairnmq.settings.group import GROUP, default_text, validate, validate_all

GROUP_CONFIGS = "group-configs/"


def alter_group_configs(
    image: Image,
    group: str,
    changes: Sequence[ConfigChange],
    *,
    whole: bool = False,
    settings: Mapping[str, Setting] = GROUP,
) -> tuple[Op, ...] | Refusal:
    """Operations that change a group's settings; `whole`: settings that are not named go. `settings` is the table of
    the broker, whose own settings are the limits."""
    refusal = check_group(group)
    if refusal is not None:
        return refusal
    now = image.group_configs.get(group, {})
    for change in changes:
        if change.name not in GROUP and change.operation != Operation.DELETE:
            refusal = validate(change.name, "")
            assert refusal is not None, change.name
            return refusal
    configs = alter(
        now,
        replacement(now, changes) if whole else changes,
        setting=settings.get,
        default=lambda name: default_text(name, {}, settings),
    )
    if isinstance(configs, Refusal):
        return configs
    refusal = validate_all(configs, settings)
    if refusal is not None:
        return refusal
    if configs == now:
        return ()
    key = GROUP_CONFIGS + level(group)
    return (Put(key, msgspec.json.encode(configs)) if configs else Delete(key),)


def check_group(group: str) -> Refusal | None:
    return None if group else Refusal(ErrorCode.INVALID_REQUEST, "The name of a group cannot be empty")


def group_of(key: str) -> str:
    """The group whose settings a store key holds."""
    return unlevel(key.removeprefix(GROUP_CONFIGS))
