"""Messages as `cairn produce` reads them: text with delimiters, or objects as `consume --json` prints them. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

import msgspec

from cairnmq.cli.near_misses import meant_by
from cairnmq.codec.records import Headers, Record

_MSGSPEC = "JSON is malformed: "  # how its errors begin
Parse = Callable[[bytes, int], Record]
"""A line, and the time to use if it has none."""

JSON_HELP = (
    'each line is an object as `cairn consume --json` prints it: "key", "value" (null: a tombstone; not a string: sent '
    'as JSON), "headers", "timestamp"; "key_encoding" or "value_encoding" may say "base64"; topic, partition and '
    "offset are ignored"
)


FIELDS = (
    "key", "value", "headers", "timestamp", "key_encoding", "value_encoding", "topic", "partition", "offset",
)  # fmt: skip


class BadLine(ValueError):
    """A line that is no message; the text says why."""


def text_parser(key: bytes | None, separator: bytes | None, headers: Headers, *, tombstones: bool) -> Parse:
    """With `tombstones` an empty value is none at all: it deletes its key from a compacted topic."""

    def parse(line: bytes, now_ms: int) -> Record:
        own, value = split_line(line, key, separator)
        return Record(0, now_ms, own, None if tombstones and not value else value, headers)

    return parse


def split_line(line: bytes, key: bytes | None, separator: bytes | None) -> tuple[bytes | None, bytes]:
    """Key and value of one line; a line without the separator has no key."""
    if separator is None or separator not in line:
        return key, line
    found, _, value = line.partition(separator)
    return found, value


def json_parser(key: bytes | None, headers: Headers, *, tombstones: bool) -> Parse:
    """What stands in a line counts more than what was given for all."""

    def parse(line: bytes, now_ms: int) -> Record:
        try:
            message = msgspec.json.decode(line)
        except msgspec.DecodeError as wrong:
            raise BadLine(f"not JSON: {str(wrong).removeprefix(_MSGSPEC)}") from None
        if not isinstance(message, dict):
            raise BadLine('not a JSON object; write {"key": ..., "value": ...}')
        if "value" not in message:
            raise BadLine('it has no "value"; null makes a tombstone')
        _refuse_unknown(message)
        value = _bytes(message, "value")
        timestamp = message.get("timestamp", now_ms)
        if not isinstance(timestamp, int) or isinstance(timestamp, bool):
            raise BadLine('"timestamp" is not a number of milliseconds since 1970')
        return Record(
            0,
            timestamp,
            _bytes(message, "key") if "key" in message else key,
            None if tombstones and not value else value,
            _headers(message["headers"]) if "headers" in message else headers,
        )

    return parse


def _refuse_unknown(message: dict[str, object]) -> None:
    """A message without the key that was meant would go to another partition, and nobody would notice."""
    for name in message.keys() - set(FIELDS):
        meant = meant_by(name, FIELDS)
        raise BadLine(f'it has an unknown field "{name}"' + (f' (did you mean "{meant}"?)' if meant else ""))


def _bytes(message: dict[str, object], field: str) -> bytes | None:
    found, encoding = message[field], message.get(f"{field}_encoding")
    if found is None:
        return None
    if encoding is None:
        return found.encode() if isinstance(found, str) else msgspec.json.encode(found)
    if encoding != "base64" or not isinstance(found, str):
        raise BadLine(f'"{field}_encoding" can only be "base64", of a string')
    try:
        return base64.b64decode(found, validate=True)
    except binascii.Error:
        raise BadLine(f'"{field}" is not base64') from None


def _headers(given: object) -> Headers:
    """A list of {"key", "value"}, or an object."""
    if isinstance(given, dict):
        given = [{"key": name, "value": value} for name, value in given.items()]
    if not isinstance(given, list) or not all(isinstance(each, dict) and "key" in each for each in given):
        raise BadLine('"headers" is neither an object nor a list of {"key": ..., "value": ...}')
    return tuple(
        (
            (_bytes(each, "key") or b"").decode("utf-8", "surrogateescape"),
            _bytes(each, "value") if "value" in each else None,
        )
        for each in given
    )
