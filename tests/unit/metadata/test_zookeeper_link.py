"""Connections to ZooKeeper that do not come about, or break: with whatever there is instead of a server.

What a real server says is tested in tests/zookeeper.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from broker_process import fixed_port, wait_until
from cairnmq.errors import Fault, Unreachable
from cairnmq.metadata.zookeeper_address import ZookeeperAddress
from cairnmq.metadata.zookeeper_link import ZookeeperLink

SESSION_MS = 2000
START_MS = 60_000  # only a failure uses it up
PING_XID = -2


def link(address: ZookeeperAddress) -> ZookeeperLink:
    return ZookeeperLink(address, SESSION_MS, 100)


def test_nobody_listens() -> None:
    made = link(ZookeeperAddress((f"127.0.0.1:{fixed_port()}",), "/x"))
    with pytest.raises(Unreachable, match="refused"):
        made.start(300)
    assert made.ended


def test_somebody_listens_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        made = link(ZookeeperAddress((f"127.0.0.1:{server.getsockname()[1]}",)))
        with pytest.raises(Unreachable, match="does not respond"):
            made.start(300)


class Deaf:
    """A server that begins sessions and answers pings, and no request."""

    def __init__(self) -> None:
        self.connections = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                self._serve(self._server.accept()[0])

    def _serve(self, connection: socket.socket) -> None:
        """Until the client leaves."""
        self.connections += 1
        with connection, connection.makefile("rb") as frames, suppress(OSError, struct.error):
            frames.read(*struct.unpack(">i", frames.read(4)))
            response = struct.pack(">iiqi16s?", 0, SESSION_MS, 1, 16, b"", False)
            connection.sendall(struct.pack(">i", len(response)) + response)
            while True:
                frame = frames.read(*struct.unpack(">i", frames.read(4)))
                if struct.unpack_from(">i", frame)[0] == PING_XID:
                    connection.sendall(struct.pack(">iiqi", 16, PING_XID, 0, 0))


def test_a_server_that_answers_only_pings_is_left() -> None:
    with closing(Deaf()) as server:
        made = link(ZookeeperAddress((server.address,)))
        made.start(START_MS)
        asked = 0

        def is_left() -> bool:
            nonlocal asked
            asked += 1
            with pytest.raises(Unreachable):
                made.fetch([lambda client: client.exists_async("/x")])
            return server.connections > 1

        wait_until(is_left, START_MS / 1000, "another connection")
        made.close()
        assert asked > 1, "one late response is no silence"


def test_what_was_never_connected_is_not_waited_for() -> None:
    made = link(ZookeeperAddress((f"127.0.0.1:{fixed_port()}",)))
    with pytest.raises(Unreachable):
        made.start(100)
    begun = time.monotonic()
    for _ in range(20):
        with pytest.raises(Unreachable):
            made.fetch([lambda client: client.exists_async("/x")])
    assert time.monotonic() - begun < 20 * 0.1, "only the first is worth its patience"


@pytest.mark.parametrize("text", ["", "user", "user:", ":password", "a:b\nc:d"])
def test_a_digest_file_has_one_line_of_user_and_password(text: str, tmp_path: Path) -> None:
    (tmp_path / "digest").write_text(text)
    with pytest.raises(Fault, match="one line USER:PASSWORD"):
        link(ZookeeperAddress(("127.0.0.1:1",), digest=str(tmp_path / "digest")))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    with pytest.raises(Fault, match="digest=.*none cannot be read"):
        link(ZookeeperAddress(("127.0.0.1:1",), digest=missing))
    with pytest.raises(Fault, match="TLS to ZooKeeper, .*none"):
        link(ZookeeperAddress(("127.0.0.1:1",), tls=True, ca=missing))


def test_files_that_are_no_certificates(tmp_path: Path) -> None:
    (tmp_path / "x.pem").write_text("nothing")
    with pytest.raises(Fault, match="TLS to ZooKeeper"):
        link(ZookeeperAddress(("127.0.0.1:1",), tls=True, ca=str(tmp_path / "x.pem")))


def test_kazoo_writes_no_log_of_its_own() -> None:
    line = (
        "from cairnmq.metadata.zookeeper_link import ZookeeperLink as L\n"
        "from cairnmq.metadata.zookeeper_address import ZookeeperAddress as A\n"
        f"made = L(A(('127.0.0.1:{fixed_port()}',)), 2000, 100)\n"
        "try: made.start(500)\nexcept Exception as error: print(type(error).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("Unreachable", "")
