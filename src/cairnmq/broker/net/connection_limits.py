"""What one connection may cost before it has to wait, or is closed."""

from __future__ import annotations

from msgspec import Struct


class Limits(Struct, frozen=True):
    request_bytes: int = 100 * 1024 * 1024
    requests: int = 128
    outstanding_bytes: int = 8 * 1024 * 1024  # more only fills memory and caches: the journal takes a few at a time
    turn_bytes: int = 256 * 1024  # then others have their turn; a large batch is a request, so one of them in a turn
    write_high: int = 32 * 1024
    write_low: int = 0  # the last bytes of a response hold all the memory that it was read into
    stall_seconds: float = 30.0
    idle_seconds: float = 600.0
