"""Every message in every version: what is written is read back, and no bytes do worse than Malformed."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cairnmq.wire import messages
from cairnmq.wire.codec import Malformed, decode, encode
from cairnmq.wire.encoders import SENTENCE_MAX
from cairnmq.wire.framing import read_request_header, request_frame
from cairnmq.wire.notation import SHAPES, Field, Shape

INTEGERS = {"i8": (-(2**7), 2**7 - 1), "i16": (-(2**15), 2**15 - 1), "u16": (0, 2**16 - 1)}
INTEGERS |= {"i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1)}
# Around every place where the length of a varint, or of the path that writes it, changes.
LENGTHS = [0, 1, 5, 126, 127, 128, 16382, 16383, 16384]
EMPTY: dict[str, Any] = {"str": "", "bytes": b"", "records": b""}
ALL = pytest.mark.parametrize("shape", SHAPES.values(), ids=lambda shape: shape.name)


def class_of(shape: Shape) -> type[messages.Message]:
    found: type[messages.Message] = getattr(messages, shape.name)
    return found


def values(shape: Shape, field: Field) -> st.SearchStrategy[Any]:
    """Null where some version allows it; `fitted` takes it back where this version does not."""
    one: st.SearchStrategy[Any]
    if field.type in INTEGERS:
        low, high = INTEGERS[field.type]
        one = st.one_of(st.integers(low, high), st.sampled_from([low, -1 if low else 1, 0, high]))
    elif field.type == "bool":
        one = st.booleans()
    elif field.type == "f64":
        one = st.floats(allow_nan=False)
    elif field.type == "uuid":
        one = st.binary(min_size=16, max_size=16)
    elif field.type == "str":
        one = st.one_of(st.text(max_size=6), st.sampled_from(LENGTHS).map("x".__mul__))
    elif field.type == "bytes":
        one = st.one_of(st.binary(max_size=6), st.sampled_from(LENGTHS).map(bytes))
    elif field.type == "records":
        one = st.sampled_from(LENGTHS).map(bytes)
    else:
        one = structs(shape, field.type)
    if field.array:
        # The lists around 8 and 127 have few distinct items: their length is what is tried.
        many = st.sampled_from([7, 8, 126, 127]) if field.type in INTEGERS else st.nothing()
        one = st.one_of(st.lists(one, max_size=2), st.builds(lambda n, item: [item] * n, many, one))
    return st.none() | one if field.nullable else one


def structs(shape: Shape, name: str) -> st.SearchStrategy[Any]:
    fields = shape.structs[name] if name else shape.fields
    made = getattr(class_of(shape), name) if name else class_of(shape)
    return st.builds(made, **{field.name: values(shape, field) for field in fields})


def fitted(shape: Shape, version: int, name: str, message: Any) -> Any:
    """The message as far as this version can say it: what it does not have at its default, no null it forbids, no
    sentence longer than anybody reads."""
    fields = shape.structs[name] if name else shape.fields
    kept = {}
    for field in fields:
        if version not in field.versions:
            continue
        value = getattr(message, field.name)
        if value is None:
            if not field.may_be_null(version):
                value = [] if field.array else EMPTY.get(field.type) if not field.is_struct else value
        elif field.is_struct:
            inner = [fitted(shape, version, field.type, item) for item in (value if field.array else [value])]
            value = inner if field.array else inner[0]
        elif field.type == "str" and field.name.endswith("error_message"):
            value = value[:SENTENCE_MAX]
        kept[field.name] = value
    return type(message)(**kept)


@ALL
@settings(max_examples=8, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_written_is_read_back(shape: Shape, data: st.DataObject) -> None:
    whole = data.draw(structs(shape, ""))
    for version in range(shape.versions.first, shape.versions.last + 1):
        message = fitted(shape, version, "", whole)
        written = b"".join(encode(whole if message == whole else message, version))
        read, end = decode(class_of(shape), version, b"before" + written + b"behind", len(b"before"))
        assert (read, end) == (message, len(b"before") + len(written)), version


def sample(shape: Shape, name: str = "") -> Any:
    """A message with something in every field and two items in every array."""
    fields = shape.structs[name] if name else shape.fields
    held: dict[str, Any] = {}
    for field in fields:
        value: Any = {"str": "abc", "bytes": b"\1\2", "records": b"rec", "uuid": b"u" * 16, "bool": True}.get(
            field.type, 5
        )
        if field.is_struct:
            value = sample(shape, field.type)
        held[field.name] = [value, value] if field.array else value
    return (getattr(class_of(shape), name) if name else class_of(shape))(**held)


@ALL
def test_a_message_cut_anywhere_is_malformed(shape: Shape) -> None:
    for version in range(shape.versions.first, shape.versions.last + 1):
        written = b"".join(encode(sample(shape), version))
        for size in range(len(written)):
            with pytest.raises(Malformed):
                decode(class_of(shape), version, written[:size])


@ALL
def test_a_changed_byte_is_read_or_malformed(shape: Shape) -> None:
    for version in range(shape.versions.first, shape.versions.last + 1):
        written = bytearray(b"".join(encode(sample(shape), version)))
        for position, right in enumerate(written):
            for wrong in (0x00, 0x7F, 0x80, 0xFF):
                written[position] = wrong
                try:
                    decode(class_of(shape), version, written)
                except Malformed:
                    pass
            written[position] = right


@settings(max_examples=300)
@given(noise=st.binary(max_size=60), pick=st.sampled_from([(s, v) for s in SHAPES.values() for v in (0, 3, 9, 13)]))
def test_noise_is_read_or_malformed(noise: bytes, pick: tuple[Shape, int]) -> None:
    shape, version = pick
    try:
        message, end = decode(class_of(shape), version, noise)
    except Malformed:
        return
    assert end <= len(noise)
    assert decode(class_of(shape), version, b"".join(encode(message, version)))[0] == message


@given(
    key=st.sampled_from([0, 1, 3, 17, 18, 9999]),
    version=st.integers(0, 20),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=300),
)
def test_request_headers_come_back(key: int, version: int, correlation_id: int, client_id: str | None) -> None:
    frame = b"".join(request_frame(key, version, correlation_id, client_id, [b"body"]))
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    header, pos = read_request_header(frame, 4)
    assert (header.api_key, header.api_version) == (key, version)
    assert (header.correlation_id, header.client_id) == (correlation_id, client_id)
    assert frame[pos:] == b"body"
    for size in range(4, pos):
        with pytest.raises(Malformed):
            read_request_header(frame[:size], 4)
