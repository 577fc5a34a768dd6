"""How far away a client is, by the time that the system measured when it connected."""

from __future__ import annotations

import socket
import sys
from struct import Struct as Layout  # noqa: TID251 - a structure of the kernel, not of the wire

FAR_MICROSECONDS = 2000

_TCP_INFO = getattr(socket, "TCP_INFO", -1) if sys.platform == "linux" else -1
_ROUND_TRIP = Layout("@68xI")  # tcpi_rtt of struct tcp_info


def is_far(raw: socket.socket) -> bool:
    """Whether it pays to send much at a time: each response costs the client a round trip."""
    if _TCP_INFO < 0:
        return True
    try:
        (microseconds,) = _ROUND_TRIP.unpack(raw.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _ROUND_TRIP.size))
    except OSError:
        return True  # the client has hung up already
    return not 0 < microseconds < FAR_MICROSECONDS  # 0: not measured
