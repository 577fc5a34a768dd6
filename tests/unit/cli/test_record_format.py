"""How records are printed: tokens, escapes, JSON, and bytes that are no text."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError

import pytest

from cairnmq.cli.record_format import DEFAULT_FORMAT, compile_format, json_line, unescape
from cairnmq.codec.records import Record

RECORD = Record(7, 1_700_000_000_123, b"k\xff", "wert é".encode(), (("a", b"1"), ("b", None)))


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (DEFAULT_FORMAT, "wert é\n".encode()),
        ("%t-%p@%o", b"topic-3@7"),
        (r"%k\t%T\n", b"k\xff\t1700000000123\n"),
        ("%h", b"a=1,b="),
        ("100%% %o", b"100% 7"),
        (r"\x00\xFe\0\\\r", b"\x00\xfe\x00\\\r"),
        ("", b""),
        ("naïve %o", "naïve 7".encode()),
    ],
)
def test_formats(text: str, printed: bytes) -> None:
    assert compile_format(text)("topic", 3, RECORD) == printed


def test_null_prints_nothing() -> None:
    assert compile_format("[%k][%v][%h]")("t", 0, Record(0, 0, None, None)) == b"[][][]"


@pytest.mark.parametrize("text", ["%x", "%", r"\q", "end\\", r"\xg1"])
def test_unknown_tokens_are_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        compile_format(text)


def test_unescape() -> None:
    assert unescape(r"\t") == b"\t"
    assert unescape("50%t") == b"50%t"


def test_json_has_the_promised_fields() -> None:
    line = json_line("topic", 3, Record(7, 123, b"key", b"value", (("a", b"1"),)))
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "topic",
        "partition": 3,
        "offset": 7,
        "timestamp": 123,
        "key": "key",
        "value": "value",
        "headers": [{"key": "a", "value": "1"}],
    }


def test_json_marks_bytes_that_are_no_text() -> None:
    odd = b"h\xff".decode("utf-8", "surrogateescape")
    line = json.loads(json_line("t", 0, Record(0, 0, b"\xff", None, ((odd, b"\xfe"),))))
    assert (line["key"], line["key_encoding"]) == ("/w==", "base64")
    assert line["value"] is None and "value_encoding" not in line
    assert line["headers"] == [{"key": "aP8=", "key_encoding": "base64", "value": "/g==", "value_encoding": "base64"}]
