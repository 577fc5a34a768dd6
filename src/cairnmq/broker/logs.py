"""The broker's log on stderr: text for people or a JSON object per line for collectors; times have their zone."""

from __future__ import annotations

import logging
import sys
import time

from msgspec import json

_handler = logging.StreamHandler(sys.stderr)


def zoned(seconds: float) -> str:
    """ISO 8601 in local time, with milliseconds and offset from UTC: 2026-11-18T06:00:02.509+01:00."""
    local = time.localtime(seconds)
    offset = time.strftime("%z", local)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', local)}.{int(seconds * 1000) % 1000:03d}{offset[:3]}:{offset[3:]}"


class TextFormat(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return zoned(record.created)


class JsonFormat(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": zoned(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.encode(fields).decode()


def configure(level: str = "info", form: str = "text") -> None:
    """Other handlers stay: they are those of whoever runs this in a process of their own."""
    _handler.setStream(sys.stderr)
    _handler.setFormatter(JsonFormat() if form == "json" else TextFormat())
    logging.getLogger().addHandler(_handler)
    set_level(level)


def set_level(level: str) -> None:
    logging.getLogger().setLevel(level.upper())


def is_json() -> bool:
    return isinstance(_handler.formatter, JsonFormat)
