"""Requests of every served API and version, right ones, made of the wire schema as tokens that can be mutated.

A token is one primitive of the protocol: a number, a length, a count, the bytes behind a length. What a decoder must
not believe (lengths, counts, nulls) thus has a place of its own that a mutation can find.
"""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

from cairnmq.wire.apis import APIS, INTERNAL_FROM, KEEP_OFFSETS, SERVED, request_header_version
from cairnmq.wire.notation import FIXED, SHAPES, Field, Shape
from cairnmq.wire.primitives import uvarint
from fuzz.batches import batch

TOPICS = ["fuzz-0", "fuzz-1", "fuzz-2", "fuzz.2", "__consumer_offsets", "no-such", "", "..", "a" * 249, "a" * 250]
GROUPS = ["fuzz-group-0", "fuzz-group-1", "fuzz-group-2", "", "g" * 500]
TEXTS = ["", "x", "range", "consumer", "compact", "delete", "-1", "0", "1", "9" * 30, "1e9", "\u0000",
         "\u00fc\U0001f600", "name\nERROR", "'; drop table", "a" * 300, "%s%n", "SET", "1:1"]  # fmt: skip
# Settings that others rely on (max.connections, message.max.bytes, the backlog) are an administrator's to spoil.
CONFIGS = ["retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes", "cairn.flush", "cairn.model",
           "min.insync.replicas", "no.such", "", "compression.type", "message.timestamp.type",
           "retention.bytes"]  # fmt: skip
EDGES = [0, 1, 2, 3, 5, 10, 127, 128, 255, 1000, 32767, 32768, 65536, 2**31 - 1, 2**31, 2**63 - 1]
BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "u16": 16}
RECORDED = Path(__file__).parent.parent / "golden" / "wire.json"


class Token:
    """`kind` is the type of the schema, or len, count, header, size, tags."""

    __slots__ = ("kind", "data", "compact")

    def __init__(self, kind: str, data: bytes, compact: bool = False) -> None:
        self.kind = kind
        self.data = data
        self.compact = compact


class Frame:
    """Tokens of a request without the size in front; `spans` are items of arrays, as ranges of tokens."""

    def __init__(self, key: int, version: int) -> None:
        self.key = key
        self.version = version
        self.tokens: list[Token] = []
        self.spans: list[tuple[int, int]] = []

    def body(self) -> bytes:
        return b"".join(token.data for token in self.tokens)


def served() -> list[tuple[int, int]]:
    """Every (api key, version) that the broker answers, our own messages among them."""
    pairs = [(key, version) for key, (_, last) in SERVED.items() for version in range(APIS[key].min, last + 1)]
    own = APIS[KEEP_OFFSETS]
    assert own.key >= INTERNAL_FROM
    return pairs + [(own.key, version) for version in range(own.min, own.max + 1)]


def recorded() -> list[bytes]:
    """What real clients sent, without the size in front."""
    return [bytes.fromhex(row["frame"]) for row in json.loads(RECORDED.read_text())]


class Maker:
    """Makes right requests; `ids` are topic ids that exist."""

    def __init__(self, rng: random.Random, ids: list[bytes]) -> None:
        self.rng = rng
        self.ids = ids

    def frame(self, key: int, version: int, correlation: int) -> Frame:
        frame = Frame(key, version)
        client = self.rng.choice([b"fuzz", b"", b"c" * 200])
        frame.tokens.append(Token("header", struct.pack(">hhi", key, version, correlation)))
        frame.tokens.append(Token("len", struct.pack(">h", len(client))))
        frame.tokens.append(Token("str", client))
        if request_header_version(key, version) == 2:
            frame.tokens.append(Token("tags", b"\0"))
        shape = SHAPES[APIS[key].name + "Request"]
        self._struct(frame, shape, shape.fields, shape.is_flexible(version))
        return frame

    def _struct(self, frame: Frame, shape: Shape, fields: tuple[Field, ...], flexible: bool) -> None:
        tagged = []
        for field in fields:
            if frame.version not in field.versions:
                continue
            if field.tag is None:
                self._field(frame, shape, field, flexible)
            elif self.rng.random() < 0.3:
                tagged.append(field)
        if flexible:
            self._tags(frame, shape, tagged)

    def _tags(self, frame: Frame, shape: Shape, tagged: list[Field]) -> None:
        unknown = self.rng.random() < 0.05
        frame.tokens.append(Token("tags", uvarint(len(tagged) + unknown)))
        for field in tagged:
            inner = Frame(frame.key, frame.version)
            self._field(inner, shape, field, True)
            assert field.tag is not None
            frame.tokens.append(Token("tags", uvarint(field.tag)))
            frame.tokens.append(Token("len", uvarint(len(inner.body())), True))
            frame.tokens += inner.tokens
        if unknown:
            frame.tokens += [Token("tags", uvarint(200)), Token("len", uvarint(3), True), Token("bytes", b"abc")]

    def _field(self, frame: Frame, shape: Shape, field: Field, flexible: bool) -> None:
        null = field.may_be_null(frame.version) and self.rng.random() < 0.15
        if field.array:
            count = -1 if null else self.rng.choice([0, 1, 1, 1, 2, 2, 3, 8])
            frame.tokens.append(Token("count", _length(count, True, flexible), flexible))
            for _ in range(count):
                start = len(frame.tokens)
                if field.is_struct:
                    self._struct(frame, shape, shape.structs[field.type], flexible)
                else:
                    self._value(frame, field, flexible, False)
                frame.spans.append((start, len(frame.tokens)))
        elif field.is_struct:
            if field.nullable is not None:
                frame.tokens.append(Token("i8", b"\xff" if null else b"\x01"))
            if not null:
                self._struct(frame, shape, shape.structs[field.type], flexible)
        else:
            self._value(frame, field, flexible, null)

    def _value(self, frame: Frame, field: Field, flexible: bool, null: bool) -> None:
        kind = field.type
        if kind in FIXED:
            frame.tokens.append(Token(kind, self._fixed(field)))
            return
        data = b"" if null else self._variable(field)
        frame.tokens.append(Token("len", _length(-1 if null else len(data), kind != "str", flexible), flexible))
        if not null:
            frame.tokens.append(Token(kind, data))

    def _fixed(self, field: Field) -> bytes:
        kind, name, rng = field.type, field.name, self.rng
        if kind == "uuid":
            return rng.choice([bytes(16), rng.randbytes(16), *self.ids])
        if kind == "bool":
            return rng.choice([b"\0", b"\1"])
        if kind == "f64":
            return struct.pack(">d", rng.choice([0.0, 1.5, -1.0, float("inf"), float("nan")]))
        if "partition" in name or name == "index":
            value = rng.choice([0, 0, 0, 1, 2, 3, 7, -1, 2**31 - 1])
        elif name in ("num_partitions", "count"):
            value = rng.choice([1, 1, 3, 12, -1, 0, 2**31 - 1])
        elif name == "replication_factor":
            value = rng.choice([1, 1, -1, 0, 3])
        elif name == "acks":
            value = rng.choice([1, 1, -1, 0, 2])
        elif name == "max_wait_ms" or name == "timeout_ms":
            value = rng.choice([0, 0, 1, 20])
        elif "timeout" in name:
            value = rng.choice([6000, 6000, 1000, 1, 0, -1])
        elif "offset" in name or "timestamp" in name or name.endswith("_time_ms"):
            value = rng.choice([0, 0, 1, 5, 100, -1, -2, -3, 1_700_000_000_000, 2**63 - 1, -(2**63)])
        elif "bytes" in name:
            value = rng.choice([2**31 - 1, 1 << 20, 100, 1, 0, -1])
        elif name == "resource_type":
            value = rng.choice([2, 2, 4, 8, 32, 0])
        else:
            value = rng.choice([0, 0, 0, 1, -1, 2, 3, *EDGES])
        return _integer(kind, value)

    def _variable(self, field: Field) -> bytes:
        kind, name, rng = field.type, field.name, self.rng
        if kind == "records":
            return batch(rng)
        if kind == "bytes":
            if rng.random() < 0.5:
                return b"\0\1\0\0\0\1\0\6fuzz-0\xff\xff\xff\xff"  # a subscription or an assignment
            return rng.randbytes(rng.choice([0, 1, 20, 3000]))
        if "group" in name and "instance" not in name:
            return rng.choice(GROUPS).encode()
        if "topic" in name or (name == "name" and rng.random() < 0.7):
            return rng.choice(TOPICS[:3] if rng.random() < 0.6 else TOPICS).encode()
        if "resource_name" in name or "config" in name or name == "name":
            return rng.choice([*CONFIGS, "1", *TOPICS[:3]]).encode()
        if name == "key" or name == "coordinator_keys":
            return rng.choice(GROUPS).encode()
        return rng.choice(TEXTS).encode()


def _length(size: int, wide: bool, flexible: bool) -> bytes:
    if flexible:
        return uvarint(size + 1)
    return struct.pack(">i" if wide else ">h", size)


def _integer(kind: str, value: int) -> bytes:
    bits = BITS[kind]
    return (value & ((1 << bits) - 1)).to_bytes(bits // 8, "big")
