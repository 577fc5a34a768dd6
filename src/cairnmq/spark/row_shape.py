"""Which columns rows to write must and may have. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from cairnmq.settings.definition import nearest
from cairnmq.spark.errors import OptionError

_TEXT = ("string", "binary")
_TYPES: dict[str, tuple[str, ...]] = {
    "key": _TEXT,
    "value": _TEXT,
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp", "timestamp_ntz"),
    "headers": ("array<struct<key:string,value:binary>>",),
}
_OF_THE_SOURCE = ("offset", "timestampType")  # so that what was read can be written as it is


class RowShape(Struct, frozen=True):
    """The columns that are used, by their place; `topic` is the same for all rows where it is set."""

    places: dict[str, int]
    topic: str | None


def row_shape(types: Mapping[str, str], topic: str | None) -> RowShape:
    """`types`: the columns of the data in their order, with the short names of their types."""
    places = {}
    for place, (name, kind) in enumerate(types.items()):
        allowed = _TYPES.get(name)
        if name in _OF_THE_SOURCE or (name == "topic" and topic is not None):
            continue
        if allowed is None:
            columns = ", ".join(_TYPES)
            raise OptionError(f"column {name} cannot be written{nearest(name, _TYPES)}; allowed columns: {columns}")
        if kind not in allowed:
            raise OptionError(f"column {name} must be {' or '.join(allowed)}, not {kind}: cast it before writing")
        places[name] = place
    if "value" not in places:
        raise OptionError("column value is missing: it holds the data to write")
    if "topic" not in places and topic is None:
        raise OptionError("no target topic: set option topic or add a column topic")
    return RowShape(places, topic)
