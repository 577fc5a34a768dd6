"""The network between brokers: what is held back, what is refused, what breaks, and who is meant by it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from broker_process import fixed_port
from cluster.links import STRANGER, Links

SECONDS = 60.0  # only a failure uses it up
QUIET_SECONDS = 0.3


class Shouter:
    """Stands for broker 2: answers each byte with two, and keeps what it heard."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_server(("127.0.0.1", port))
        self.heard = b""
        self.ended = threading.Event()
        self.changed = threading.Condition()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(1000):
                    with self.changed:
                        self.heard += data
                        self.changed.notify_all()
                    connection.sendall(data * 2)
            except OSError:
                pass
        self.ended.set()

    def wait_for(self, data: bytes) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.heard == data, SECONDS), self.heard


class Scene:
    """This process is broker 1, which connects to broker 2; 3 is another one."""

    def __init__(self) -> None:
        self.links = Links(lambda: {1: os.getpid(), 3: os.getppid()})
        self.port, target = fixed_port(), fixed_port()
        self.shouter = Shouter(target)
        self.links.add(2, self.port, target)
        for node in (1, 3):
            self.links.add(node, fixed_port(), fixed_port())

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.links.close()
    made.shouter.socket.close()


def told(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (data := connection.recv(size - len(found))):
        found += data
    return found


def nothing_comes(connection: socket.socket) -> bool:
    connection.settimeout(QUIET_SECONDS)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(SECONDS)
    return False


def test_all_passes(scene: Scene) -> None:
    with closing(scene.connect()) as connection:
        for _ in range(3):
            connection.sendall(b"ab")
            assert told(connection, 4) == b"abab"
    assert scene.shouter.ended.wait(SECONDS)


def test_who_connects_is_known(scene: Scene) -> None:
    with closing(scene.connect()) as connection:
        port = connection.getsockname()[1]
        assert scene.links.who(port, scene.port) == 1
        assert scene.links.who(port, scene.port + 1) == STRANGER
        assert scene.links.who(port + 1, scene.port) == STRANGER


def test_a_cut_holds_what_is_sent_and_delivers_it_late(scene: Scene) -> None:
    with closing(scene.connect()) as connection:
        connection.sendall(b"a")
        assert told(connection, 2) == b"aa"
        scene.links.cut(1, 2)
        connection.sendall(b"b")
        assert nothing_comes(connection) and scene.shouter.heard == b"a"
        scene.links.heal()
        assert told(connection, 2) == b"bb"


def test_a_cut_of_the_other_way_lets_requests_through(scene: Scene) -> None:
    with closing(scene.connect()) as connection:
        connection.sendall(b"a")
        assert told(connection, 2) == b"aa"
        scene.links.cut(2, 1)
        connection.sendall(b"b")
        scene.shouter.wait_for(b"ab")
        assert nothing_comes(connection)
        scene.links.heal()
        assert told(connection, 2) == b"bb"


def test_new_connections_hang_in_a_cut(scene: Scene) -> None:
    scene.links.cut(2, 1)
    with closing(scene.connect()) as connection:
        connection.sendall(b"a")
        assert nothing_comes(connection) and not scene.shouter.heard
        scene.links.heal()
        assert told(connection, 2) == b"aa"


def test_a_cut_between_others_is_none_of_ours(scene: Scene) -> None:
    scene.links.part(2, 3)
    with closing(scene.connect()) as connection:
        connection.sendall(b"a")
        assert told(connection, 2) == b"aa"


def test_an_isolated_broker_hears_nobody(scene: Scene) -> None:
    with closing(scene.connect()) as connection:
        connection.sendall(b"a")
        assert told(connection, 2) == b"aa"
        scene.links.isolate(2)
        connection.sendall(b"b")
        assert nothing_comes(connection)
        assert {pair for pair, gate in scene.links.gates.items() if not gate._open.is_set()} == {
            (1, 2), (2, 1), (3, 2), (2, 3),
        }  # fmt: skip


def test_refused_as_if_nobody_listened(scene: Scene) -> None:
    with closing(scene.connect()) as connection:
        connection.sendall(b"a")
        assert told(connection, 2) == b"aa"
        scene.links.refuse(2)
        with pytest.raises(ConnectionRefusedError):
            scene.connect()
        connection.sendall(b"b")
        assert told(connection, 2) == b"bb", "what was connected stays"
    scene.links.accept(2)
    with closing(scene.connect()) as connection:
        connection.sendall(b"b")
        assert told(connection, 2) == b"bb"


def test_reset_breaks_what_is_connected(scene: Scene) -> None:
    with closing(scene.connect()) as connection:
        connection.sendall(b"a")
        assert told(connection, 2) == b"aa"
        scene.links.reset(2)
        with pytest.raises(ConnectionResetError):
            assert connection.recv(1), "an end is no reset"
        assert scene.shouter.ended.wait(SECONDS)


def test_a_broker_that_does_not_listen_breaks_the_connection(scene: Scene) -> None:
    scene.shouter.socket.shutdown(socket.SHUT_RDWR)
    scene.shouter.socket.close()
    # Perhaps before the connection is seen to be there.
    with pytest.raises((ConnectionResetError, BrokenPipeError)), closing(scene.connect()) as connection:
        connection.sendall(b"a")
        assert connection.recv(1), "an end is no reset"
        raise AssertionError("it is served")


def test_that_a_connection_ended_is_held_back_too(scene: Scene) -> None:
    connection = scene.connect()
    connection.sendall(b"a")
    assert told(connection, 2) == b"aa"
    scene.links.cut(1, 2)
    connection.close()
    assert not scene.shouter.ended.wait(QUIET_SECONDS)
    scene.links.heal()
    assert scene.shouter.ended.wait(SECONDS)
