"""How patient both ends of a link are."""

from __future__ import annotations

from msgspec import Struct

LAST_CHANCE_SECONDS = 0.1  # after a time limit, to read what is there already


class LinkTiming(Struct, frozen=True):
    """All in seconds. A dead machine is noticed by the system's own probes (`dead_seconds`), which cost no wake-ups."""

    connect_seconds: float = 2.0
    hello_seconds: float = 5.0  # for the whole handshake
    silence_seconds: float = 5.0  # beyond what a request may wait: no byte of the response meanwhile
    stall_seconds: float = 10.0  # not one byte of a response could be sent
    dead_seconds: float = 10.0  # sent bytes, or probes of an idle link, are not acknowledged
    finish_seconds: float = 5.0  # requests that are served while the listener closes
