"""What commands write: data on stdout as bytes, notes and progress on stderr, colours only on a terminal."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TextIO

RED, GREEN, YELLOW, DIM, BOLD = "31", "32", "33", "2", "1"
_NUMBER = re.compile(r"-|-?\d+(\.\d+ [KMGT]iB| B)?")
PROGRESS_EVERY_SECONDS = 0.2


class UsageError(Exception):
    """A wrong command line that argparse could not know to be wrong: exit code 2."""


def sentence(failure: Exception) -> str | None:
    """What to tell people about an expected failure; None for anything else, which is a bug and must show its trace."""
    from cairnmq.client.errors import ClientError
    from cairnmq.codec.compression import CodecMissing, Undecodable
    from cairnmq.errors import Fault
    from cairnmq.os_errors import text_of

    expected = isinstance(failure, OSError | ClientError | Fault | CodecMissing | Undecodable)
    return text_of(failure) if expected else None


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def error(text: str) -> None:
    note(f"{paint('cairn:', RED, sys.stderr)} {text}")


def warn(text: str) -> None:
    note(f"{paint('note:', DIM, sys.stderr)} {text}")


def report_deleted(outcomes: Mapping[str, Exception | None]) -> int:
    """A line for each name, with what was refused and why; the exit code."""
    for name, refused in outcomes.items():
        if refused is None:
            note(f"deleted {name}")
        else:
            error(str(refused))
    return 1 if any(refused is not None for refused in outcomes.values()) else 0


def paint(text: str, colour: str, stream: TextIO) -> str:
    """The text in a colour, if the stream is a terminal and NO_COLOR is not set."""
    if os.environ.get("NO_COLOR") or not stream.isatty():
        return text
    return f"\x1b[{colour}m{text}\x1b[0m"


def write(data: bytes) -> None:
    sys.stdout.buffer.write(data)


def write_line(text: str) -> None:
    write(text.encode("utf-8", "surrogateescape") + b"\n")


def agreed(otherwise: str) -> bool:
    """Asks on a terminal; elsewhere nobody is there to ask. `otherwise`: the command that does not ask."""
    if not sys.stdin.isatty():
        note(f"nothing was changed. {otherwise} does it.")
        return False
    sys.stderr.write("Continue? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    note("nothing was changed.")
    return False


def or_dash(value: object | None) -> str:
    return "-" if value is None else str(value)


def size_text(count: int | None) -> str:
    """Bytes for people: 1.5 GiB."""
    if count is None or count < 0:
        return "-"
    if count < 1024:
        return f"{count} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"


def write_json(value: object) -> None:
    import msgspec

    write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def write_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns two spaces apart; columns of numbers stand to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    first, *others = lay_out(headings, cells)
    write_line(paint(first, BOLD, sys.stdout))
    for line in others:
        write_line(line)


def lay_out(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    columns = range(len(headings))
    widths = [max(len(headings[i]), *(len(row[i]) for row in cells), 0) for i in columns]
    numeric = [bool(cells) and all(_NUMBER.fullmatch(row[i]) for row in cells) for i in columns]
    lines = []
    for row in (headings, *cells):
        padded = [row[i].rjust(widths[i]) if numeric[i] else row[i].ljust(widths[i]) for i in columns]
        lines.append("  ".join(padded).rstrip())
    return lines


class Progress:
    """A line that overwrites itself, for long work; silent unless stderr is a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._shown = self._stream.isatty()
        self._next = 0.0

    def show(self, text: str) -> None:
        now = time.monotonic()
        if self._shown and now >= self._next:
            self._next = now + PROGRESS_EVERY_SECONDS
            self._stream.write(f"\r{self._fitting(text)}\x1b[K")
            self._stream.flush()

    def _fitting(self, text: str) -> str:
        """A line that wraps cannot be overwritten."""
        try:
            width = os.get_terminal_size(self._stream.fileno()).columns - 1
        except OSError:
            return text
        return text if len(text) <= width or width < 1 else text[: width - 1] + "…"

    def clear(self) -> None:
        if self._shown and self._next:
            self._next = 0.0
            self._stream.write("\r\x1b[K")
            self._stream.flush()
