"""How a record is printed: by a format string like kcat's, or as one JSON object per line. Pure."""

from __future__ import annotations

import base64
import re
from argparse import ArgumentTypeError
from collections.abc import Callable

import msgspec

from cairnmq.codec.records import Record

Printer = Callable[[str, int, Record], bytes]

DEFAULT_FORMAT = r"%v\n"
TOKENS_HELP = (
    "%t topic, %p partition, %o offset, %k key, %v value, %h headers, %T timestamp (ms), %% percent, "
    r"\n \t \r \\ \0 \xHH"
)
JSON_HELP = (
    "one JSON object per record: topic, partition, offset, timestamp, key, value, headers (a list of key and value). "
    'Bytes that are not UTF-8 are base64, and a field "key_encoding" or "value_encoding" beside them says "base64"'
)

_PIECE = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)|[^%\\]+", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}
_TOKENS: dict[str, Printer] = {
    "t": lambda topic, partition, record: topic.encode(),
    "p": lambda topic, partition, record: b"%d" % partition,
    "o": lambda topic, partition, record: b"%d" % record.offset,
    "k": lambda topic, partition, record: record.key or b"",
    "v": lambda topic, partition, record: record.value or b"",
    "h": lambda topic, partition, record: _headers(record),
    "T": lambda topic, partition, record: b"%d" % record.timestamp,
}


def compile_format(text: str) -> Printer:
    """A function that prints a record in this format; ArgumentTypeError for a token that does not exist."""
    pieces: list[bytes | Printer] = []
    for match in _PIECE.finditer(text):
        token, escape = match.group(1), match.group(2)
        if token is not None and token in _TOKENS:
            pieces.append(_TOKENS[token])
        elif token == "%":
            pieces.append(b"%")
        elif token is not None:
            raise ArgumentTypeError(f"%{token} is not a token; there are: {TOKENS_HELP}")
        elif escape is not None:
            pieces.append(unescape("\\" + escape))
        else:
            pieces.append(match.group().encode("utf-8", "surrogateescape"))

    def printer(topic: str, partition: int, record: Record) -> bytes:
        return b"".join(p if isinstance(p, bytes) else p(topic, partition, record) for p in pieces)

    return printer


def unescape(text: str) -> bytes:
    r"""The bytes of text with \n, \t, \r, \\, \0 and \xHH; ArgumentTypeError for another escape."""
    out = b""
    for match in _PIECE.finditer(text):
        escape = match.group(2)
        if escape is None:
            out += match.group().encode("utf-8", "surrogateescape")
        elif escape in _ESCAPES:
            out += _ESCAPES[escape]
        elif len(escape) == 3:
            out += bytes.fromhex(escape[1:])
        else:
            raise ArgumentTypeError(rf"\{escape} is not an escape; there are \n \t \r \\ \0 \xHH")
    return out


def json_line(topic: str, partition: int, record: Record) -> bytes:
    line: dict[str, object] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    _put(line, "key", record.key)
    _put(line, "value", record.value)
    headers: list[dict[str, object]] = []
    for name, value in record.headers:
        header: dict[str, object] = {}
        _put(header, "key", name.encode("utf-8", "surrogateescape"))
        _put(header, "value", value)
        headers.append(header)
    line["headers"] = headers
    return msgspec.json.encode(line) + b"\n"


def _put(line: dict[str, object], field: str, data: bytes | None) -> None:
    if data is None:
        line[field] = None
        return
    try:
        line[field] = data.decode()
    except UnicodeDecodeError:
        line[field] = base64.b64encode(data).decode()
        line[f"{field}_encoding"] = "base64"


def _headers(record: Record) -> bytes:
    return b",".join(name.encode("utf-8", "surrogateescape") + b"=" + (value or b"") for name, value in record.headers)
