"""Near and far clients."""

from __future__ import annotations

import socket
import sys
from typing import Any, cast

import pytest

from cairnmq.broker.net.client_rtt import is_far

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


def test_a_client_on_this_machine_is_near() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            assert not is_far(accepted)
        assert not is_far(client)
        assert is_far(accepted), "a socket that is closed cannot be asked"


@pytest.mark.parametrize(("microseconds", "far"), [(0, True), (1, False), (1999, False), (2000, True), (80_000, True)])
def test_the_round_trip_decides(microseconds: int, far: bool) -> None:
    class Told:
        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            assert (level, option) == (socket.IPPROTO_TCP, socket.TCP_INFO)
            info = bytearray(b"\xff" * 68 + microseconds.to_bytes(4, "little") + b"\xff" * 100)
            return bytes(info[:size])

    assert is_far(cast(Any, Told())) == far
