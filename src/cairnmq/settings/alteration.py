"""IncrementalAlterConfigs as a pure function: settings and changes in, new settings out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

from msgspec import Struct

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.settings.definition import ConfigType, Setting, split_list


class Operation(IntEnum):
    """Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(Struct, frozen=True, gc=False):
    """One change of one setting. `operation` is a plain number because it comes from the wire."""

    name: str
    operation: int
    value: str | None = None


def replacement(configs: Mapping[str, str], wanted: Sequence[ConfigChange]) -> list[ConfigChange]:
    """The changes that leave only what is wanted: what AlterConfigs means, where a name not sent is a name removed."""
    named = {change.name for change in wanted}
    return [*wanted, *(ConfigChange(name, Operation.DELETE) for name in configs if name not in named)]


def alter(
    configs: Mapping[str, str],
    changes: Sequence[ConfigChange],
    *,
    setting: Callable[[str], Setting | None],
    default: Callable[[str], str | None],
) -> dict[str, str] | Refusal:
    """The settings after the changes; the caller validates the new texts once, at the end.

    `default` gives the text of a name that is not set: as in Kafka, appending extends the default.
    """
    altered = dict(configs)
    seen: set[str] = set()
    for change in changes:
        if change.name in seen:
            return Refusal(ErrorCode.INVALID_REQUEST, f"{change.name} is changed twice in one request")
        seen.add(change.name)
        if change.operation == Operation.DELETE:
            altered.pop(change.name, None)
            continue
        if change.operation not in (Operation.SET, Operation.APPEND, Operation.SUBTRACT):
            return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown operation {change.operation} for {change.name}")
        if change.value is None:
            return Refusal(ErrorCode.INVALID_REQUEST, f"{change.name} needs a value")
        if change.operation == Operation.SET:
            altered[change.name] = change.value
            continue
        row = setting(change.name)
        if row is not None and row.type != ConfigType.LIST:
            verb = "append to" if change.operation == Operation.APPEND else "subtract from"
            return Refusal(ErrorCode.INVALID_CONFIG, f"Cannot {verb} {change.name}: it is not a list")
        items = list(split_list(altered.get(change.name, default(change.name) or "")))
        for item in split_list(change.value):
            if change.operation == Operation.APPEND and item not in items:
                items.append(item)
            elif change.operation == Operation.SUBTRACT and item in items:
                items.remove(item)
        altered[change.name] = ",".join(items)
    return altered
