"""What verify has to say about one file: a finding, or a note about something a start repairs by itself."""

from __future__ import annotations

from msgspec import Struct


class Finding(Struct, frozen=True, gc=False):
    """`file` is named as a person would look for it."""

    file: str
    text: str
    is_note: bool = False

    def __str__(self) -> str:
        return f"{'note: ' if self.is_note else ''}{self.file}: {self.text}"


def note(file: str, text: str) -> Finding:
    return Finding(file, text, True)
