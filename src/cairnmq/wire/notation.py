"""Reads the notation of schema.py into shapes: what a message holds in which version. Imports only the table."""

from __future__ import annotations

import re
from typing import TypeAlias

from msgspec import Struct

from cairnmq.wire.schema import TABLE

Default: TypeAlias = int | float | bool | str | bytes | tuple[()] | None

FIXED = {"bool": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u16": "H", "f64": "d", "uuid": "16s"}
VARIABLE = {"str", "bytes", "records"}
ZERO: dict[str, Default] = {"bool": False, "f64": 0.0, "uuid": bytes(16), "str": "", "bytes": b"", "records": None}


class Range(Struct, frozen=True):
    """Versions from first to last, both included."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


class Field(Struct, frozen=True):
    name: str
    type: str
    array: bool
    versions: Range
    nullable: Range | None
    tag: int | None
    default: Default

    @property
    def is_struct(self) -> bool:
        return self.type not in FIXED and self.type not in VARIABLE

    @property
    def is_embedded(self) -> bool:
        """A struct that is always there: no count, no null, and its default is a struct of defaults."""
        return self.is_struct and not self.array and self.nullable is None

    def may_be_null(self, version: int) -> bool:
        return self.nullable is not None and version in self.nullable


class Shape(Struct, frozen=True):
    """One message, request or response, in all its versions."""

    name: str
    key: int | None
    versions: Range
    flexible_from: int | None
    fields: tuple[Field, ...]
    structs: dict[str, tuple[Field, ...]]

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from


_FIELD = re.compile(
    r"(?P<name>[a-z][a-z0-9_]*):(?P<open>\[?)(?P<type>\w+)\]?"
    r"(?:(?P<null>\?)(?P<null_versions>[\d+-]*))?(?:@(?P<versions>[\d+-]+))?(?:#(?P<tag>\d+))?(?:=(?P<default>\S+))?"
)


def parse(table: str) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    lines = re.sub(r"\n {4}", " ", table).strip("\n").split("\n")
    name, key, versions, flexible_from = "", None, Range(0, 0), None
    structs: dict[str, tuple[Field, ...]] = {}
    for line in lines:
        if not line.startswith(" "):
            name, key_text, version_text, flexible_text = line.split()
            key = None if key_text == "-" else int(key_text)
            versions = _range(version_text, Range(0, 0))
            flexible_from = None if flexible_text == "never" else int(flexible_text.rstrip("+"))
            continue
        head, *tokens = line.split()
        fields = tuple(_field(token, versions) for token in tokens)
        if head.endswith(":"):
            structs[head[:-1]] = fields
        else:
            full_name = name + {">": "Request", "<": "Response", "=": ""}[head]
            structs = {}
            shapes[full_name] = Shape(full_name, key, versions, flexible_from, fields, structs)
    return shapes


def _field(token: str, versions: Range) -> Field:
    match = _FIELD.fullmatch(token)
    if match is None:
        raise ValueError(f"schema table: cannot read {token!r}")
    own = _range(match["versions"], versions)
    kind, array = match["type"], bool(match["open"])
    return Field(
        name=match["name"],
        type=kind,
        array=array,
        versions=own,
        nullable=_range(match["null_versions"], own) if match["null"] else None,
        tag=None if match["tag"] is None else int(match["tag"]),
        default=_default(match["default"], kind, array),
    )


def _range(text: str | None, whole: Range) -> Range:
    if not text:
        return whole
    first, dash, last = text.rstrip("+").partition("-")
    return Range(int(first), whole.last if text.endswith("+") else int(last if dash else first))


def _default(text: str | None, kind: str, array: bool) -> Default:
    if text == "null":
        return None
    if array:
        return ()
    if text is None:
        return ZERO.get(kind, 0 if kind in FIXED else None)
    return text == "true" if kind == "bool" else int(text)


SHAPES = parse(TABLE)
