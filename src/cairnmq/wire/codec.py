"""Bytes to messages and back. Codecs are compiled for one message in one version, when they are first needed.

Strings become str, bytes fields bytes, uuids 16 raw bytes, records a view into the buffer that was read (which it keeps
alive). Nothing is allocated for a count before it is known that the bytes for it are there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from cairnmq.kernels import pick
from cairnmq.types import Buffer
from cairnmq.wire.decoders import decoder_source
from cairnmq.wire.encoders import Structs, encoder_source, items_source
from cairnmq.wire.messages import Message
from cairnmq.wire.notation import SHAPES, Shape
from cairnmq.wire.primitives import Malformed, read_uvarint, skip_tags, tag_section, uvarint

__all__ = ["Encoded", "Malformed", "decode", "encode", "prepare"]

M = TypeVar("M", bound=Message)
Decoder = Callable[[memoryview, int], tuple[Any, int]]
Encoder = Callable[[Any], list[Buffer]]


class Encoded:
    """Items of an answer's array that are bytes already, in place of the list of them.

    An answer that would be too large as objects, or take too long at once, is encoded piece by piece.
    """

    __slots__ = ("_count", "_encode", "_cls", "_version", "buffers")

    def __init__(self, cls: type[Message], field: str, version: int) -> None:
        self._encode = _item_encoders.get((cls, field, version)) or _compile_items(cls, field, version)
        self._cls = cls
        self._version = version
        self._count = 0
        self.buffers: list[Buffer] = []

    def __len__(self) -> int:
        return self._count

    def add(self, items: Sequence[Struct]) -> None:
        self._count += len(items)
        self.buffers += self._encode(items)

    def add_from(self, body: list[Buffer], count: int) -> None:
        """The items of a whole answer that ends with the array and has no other field set."""
        flexible = SHAPES[self._cls.__name__].is_flexible(self._version)
        empty = sum(map(len, encode(self._cls(), self._version)))
        # Empty, it ends with the count; if flexible that is one byte, and one that says no tags follows.
        head = empty - 2 + len(uvarint(count + 1)) if flexible else empty
        buffers = list(body)
        buffers[0] = memoryview(buffers[0])[head:]
        if flexible:
            buffers[-1] = memoryview(buffers[-1])[:-1]
        self._count += count
        self.buffers += buffers


_RUNTIME: dict[str, object] = {
    "Encoded": Encoded,
    "Malformed": Malformed,
    "read_uvarint": read_uvarint,
    "skip_tags": skip_tags,
    "tag_section": tag_section,
    "uvarint": uvarint,
    "pack": struct.pack,
    "unpack_from": struct.unpack_from,
    "ONE": [bytes([value]) for value in range(128)],
}
_decoders: dict[tuple[type[Message], int], Decoder] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}
_item_encoders: dict[tuple[type[Message], str, int], Encoder] = {}


def decode(cls: type[M], version: int, buf: Buffer, pos: int = 0) -> tuple[M, int]:
    """The message at `pos` and the position behind it; Malformed if that is not what the bytes are."""
    try:
        decoder = _decoders.get((cls, version)) or _compile_decoder(cls, version)
        return decoder(buf if type(buf) is memoryview else memoryview(buf), pos)
    except (IndexError, struct.error) as error:
        raise Malformed(f"{cls.__name__} v{version} is truncated") from error
    except UnicodeDecodeError as error:
        raise Malformed(f"{cls.__name__} v{version} has a string that is not UTF-8") from error


def encode(message: Message, version: int) -> list[Buffer]:
    """The message as buffers to send one after another; fields that the version does not have are left out."""
    cls = type(message)
    encoder = _encoders.get((cls, version)) or _compile_encoder(cls, version)
    try:
        return encoder(message)
    except (struct.error, AttributeError, TypeError) as error:
        raise ValueError(f"{cls.__name__} v{version} cannot be sent: {error}") from error


def prepare(cls: type[Message], version: int) -> None:
    """Compiles both directions now, so that the first request does not wait for it."""
    if (cls, version) not in _decoders:
        _compile_decoder(cls, version)
    if (cls, version) not in _encoders:
        _compile_encoder(cls, version)


def decoder_for(name: str, version: int, pure: Decoder) -> Decoder:
    """The fastest decoder there is. Pure twin of _codec.pyx, which has better ones for the hottest messages."""
    return pure


def encoder_for(name: str, version: int, pure: Encoder) -> Encoder:
    return pure


_decoder_for = pick(decoder_for)
_encoder_for = pick(encoder_for)


def _compile_decoder(cls: type[Message], version: int) -> Decoder:
    decoder = _decoders[cls, version] = _decoder_for(cls.__name__, version, pure_decoder(cls, version))
    return decoder


def _compile_encoder(cls: type[Message], version: int) -> Encoder:
    encoder = _encoders[cls, version] = _encoder_for(cls.__name__, version, pure_encoder(cls, version))
    return encoder


def _compile_items(cls: type[Message], field: str, version: int) -> Encoder:
    shape = SHAPES[cls.__name__]
    encoder = _item_encoders[cls, field, version] = _run_encoder(items_source(shape, field, version), cls, version)
    return encoder


def pure_decoder(cls: type[Message], version: int) -> Decoder:
    shape = SHAPES[cls.__name__]
    if version not in shape.versions:
        raise Malformed(f"{cls.__name__} has no version {version}")
    source, structs = decoder_source(shape, version)
    calls = {name: compiled.unpack_from for name, compiled in structs.items()}
    decoder: Decoder = _run(source, "decode", cls, version, shape, calls)
    return decoder


def pure_encoder(cls: type[Message], version: int) -> Encoder:
    shape = SHAPES[cls.__name__]
    if version not in shape.versions:
        raise ValueError(f"{cls.__name__} has no version {version}")
    return _run_encoder(encoder_source(shape, version), cls, version)


def _run_encoder(written: tuple[str, Structs], cls: type[Message], version: int) -> Encoder:
    source, structs = written
    calls = {name: [s.pack for s in made] if isinstance(made, list) else made.pack for name, made in structs.items()}
    encoder: Encoder = _run(source, "encode", cls, version, SHAPES[cls.__name__], calls)
    return encoder


def _run(source: str, name: str, cls: type[Message], version: int, shape: Shape, calls: dict[str, Any]) -> Any:
    scope: dict[str, object] = {**_RUNTIME, **calls, "C_": cls}
    embedded = {f.type for fields in (shape.fields, *shape.structs.values()) for f in fields if f.is_embedded}
    for struct_name in shape.structs:
        struct_class: type[Struct] = getattr(cls, struct_name)
        scope["C_" + struct_name] = struct_class
        if struct_name in embedded:
            scope["D_" + struct_name] = _default_of(cls, shape, struct_name)
    exec(compile(source, f"<{name} {cls.__name__} v{version}>", "exec"), scope)
    return scope[name]


def _default_of(cls: type[Message], shape: Shape, struct_name: str) -> object:
    """The one instance that all fields of this struct hold until they are set: `is` finds it without comparing."""
    for owner, fields in ((cls, shape.fields), *((getattr(cls, s), f) for s, f in shape.structs.items())):
        for field in fields:
            if field.is_embedded and field.type == struct_name:
                return getattr(owner(), field.name)
    raise KeyError(struct_name)
