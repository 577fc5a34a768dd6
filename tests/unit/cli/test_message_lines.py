"""Lines as messages: text with keys and tombstones, and JSON in the form that consume prints."""

from __future__ import annotations

import pytest

from cairnmq.cli.message_lines import BadLine, json_parser, text_parser
from cairnmq.cli.record_format import json_line
from cairnmq.codec.records import Record


def test_an_empty_value_is_a_tombstone_if_that_is_wanted() -> None:
    plain, tombstones = (text_parser(None, b":", (), tombstones=wanted) for wanted in (False, True))
    assert (plain(b"k:", 1).key, plain(b"k:", 1).value) == (b"k", b"")
    assert (tombstones(b"k:", 1).key, tombstones(b"k:", 1).value) == (b"k", None)
    assert tombstones(b"k:v", 1).value == b"v"


@pytest.mark.parametrize(
    "record",
    [
        Record(0, 5, b"k", b"v", (("h", b"1"), ("h", None))),
        Record(0, 5, None, None),
        Record(0, 5, b"\xff", b"\xfe\x00", (("h", b"\xff"),)),
        Record(0, 5, b"", b""),
    ],
)
def test_what_consume_prints_can_be_produced(record: Record) -> None:
    assert json_parser(b"another", (("x", b"y"),), tombstones=False)(json_line("t", 3, record), 9) == record


def test_values_that_are_not_text_are_sent_as_json() -> None:
    parse = json_parser(b"k", (("x", b"y"),), tombstones=False)
    record = parse(b'{"value": {"total": [1, 2.5, null]}}', 7)
    assert record == Record(0, 7, b"k", b'{"total":[1,2.5,null]}', (("x", b"y"),))
    assert parse(b'{"value": 1, "headers": {"a": "b"}}', 7).headers == (("a", b"b"),)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "not JSON: Input data was truncated"),
        (b"hello", "not JSON: invalid character"),
        (b'{"kye": "k", "value": "v"}', r'unknown field "kye" \(did you mean "key"\?\)'),
        (b'{"tenant": 1, "value": "v"}', 'unknown field "tenant"$'),
        (b"[1]", "not a JSON object"),
        (b'{"key": "k"}', 'it has no "value"'),
        (b'{"value": "!", "value_encoding": "base64"}', '"value" is not base64'),
        (b'{"value": "v", "value_encoding": "hex"}', 'can only be "base64"'),
        (b'{"value": "v", "timestamp": "now"}', '"timestamp" is not a number'),
        (b'{"value": "v", "headers": "h"}', '"headers" is neither'),
        (b'{"value": "v", "headers": [1]}', '"headers" is neither'),
    ],
)
def test_lines_that_are_no_messages(line: bytes, why: str) -> None:
    with pytest.raises(BadLine, match=why):
        json_parser(None, (), tombstones=False)(line, 1)
