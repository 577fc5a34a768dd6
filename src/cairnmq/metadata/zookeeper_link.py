"""A connection to ZooKeeper, through kazoo: requests are sent together, and responses are not waited for without end.

Only this module knows kazoo. Its threads are its own: what they call here sets a flag and asks nothing.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.retry import KazooRetry
from kazoo.security import make_digest_acl

from cairnmq.errors import Fault, Unreachable
from cairnmq.metadata.zookeeper_address import ZookeeperAddress

CONNECT_SECONDS = 1.0
"""For one server. Kazoo alone would wait a whole session for one that does not answer, and lose the session."""
RETRY_SECONDS = 0.1
RETRY_SECONDS_MAX = 0.5
IMPATIENT = 5
"""A server that did not respond in time is waited for this much less, until it responds."""
SILENCE = 3
"""A server that has left requests without a response for this part of the session is left for another one. Kazoo takes
each request for a sign of life, and notices no silence while something is asked more often than it would ping."""
CHUNK = 500
"""Requests that are under way at once."""

_NOTES = 5  # the level of kazoo's notes on how a session begins
_SESSION_BEGINS = "Session created"

Ask: TypeAlias = Callable[[KazooClient], Any]
"""Sends one request; its AsyncResult."""


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Kazoo's threads have names, a server that does not answer is left for the next one, and TLS is as we set it."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tls = tls
        self._made: socket.socket | None = None
        self.spawn = _start_thread

    def leave(self) -> None:
        """Kazoo finds the connection broken, and takes the next server."""
        if self._made is not None:
            with suppress(OSError):  # it is closed
                socket.socket.shutdown(self._made, socket.SHUT_RDWR)  # of TLS too: its state is kazoo's thread's

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float = CONNECT_SECONDS, **_: object
    ) -> socket.socket:
        made = socket.create_connection(address, min(timeout, CONNECT_SECONDS))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            try:
                made = self._tls.wrap_socket(made, server_hostname=hostname)
            except BaseException:
                made.close()
                raise
        self._made = made
        return made


def _start_thread(func: Callable[..., None], *args: object, **named: object) -> threading.Thread:
    thread = threading.Thread(target=func, args=args, kwargs=named, name="zookeeper", daemon=True)
    thread.start()
    return thread


class _Told:
    """What kazoo says in its log and nowhere else: why a connection broke, and which time a session was granted. A
    filter of that log, which lets nothing through."""

    def __init__(self) -> None:
        self.warning = ""
        self.granted_ms = 0

    def __call__(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING:
            text = record.getMessage().removeprefix("Connection dropped: ").removeprefix("socket connection error: ")
            self.warning = self.warning if text == "Transition to CONNECTING" else text
        elif str(record.msg).startswith(_SESSION_BEGINS) and isinstance(record.args, tuple):
            self.granted_ms = int(str(record.args[2]))
        return False


class ZookeeperLink:
    """One connection, and its session in ZooKeeper. Calls block: `wait_ms` for a connection, and for responses.
    `on_event` is called on kazoo's threads."""

    def __init__(
        self, address: ZookeeperAddress, timeout_ms: int, wait_ms: int, on_event: Callable[[], None] = lambda: None
    ) -> None:
        self.ended = False  # the session that it began with is over
        self._address = address
        self._timeout_ms = timeout_ms
        self._wait = wait_ms / 1000
        self._on_event = on_event
        self._up = threading.Event()
        self._down_since = time.monotonic()
        self._responds = True
        self._silent_since: float | None = None  # when a request was sent and none had a response since
        self._handler = _Handler(_tls(address))
        self._told = _Told()
        self._log = logging.Logger("kazoo", _NOTES)  # of its own: kazoo writes a line for each attempt to connect
        self._log.addFilter(self._told)
        digest = _digest(address)
        self._client = KazooClient(
            hosts=address.hosts,
            timeout=timeout_ms / 1000,
            handler=self._handler,
            connection_retry=KazooRetry(max_tries=-1, delay=RETRY_SECONDS, max_delay=RETRY_SECONDS_MAX),
            auth_data=[("digest", digest)] if digest else None,
            default_acl=[make_digest_acl(*digest.split(":", 1), all=True)] if digest else None,
            logger=self._log,
        )
        self._client.add_listener(self._state)

    @property
    def granted_ms(self) -> int:
        """The time of its session. ZooKeeper has bounds, from 2 to 20 ticks as it is shipped."""
        return self._told.granted_ms or self._timeout_ms

    @property
    def connected(self) -> bool:
        """Whether kazoo keeps the session alive now."""
        return self._up.is_set()

    def start(self, patience_ms: int) -> None:
        """Connect. Unreachable: nobody answers."""
        self._client.start_async()
        if not self._up.wait(patience_ms / 1000):
            why = self._why()
            self.close()
            raise Unreachable(why)

    def close(self) -> None:
        """End the session. On no thread of kazoo. A server that says nothing is left to find that out by itself."""
        self.ended = True
        if not self._responds:
            self._handler.leave()  # kazoo would wait 10 s for its farewell
        with suppress(KazooException, OSError):
            self._client.stop()
            self._client.close()
        self._up.clear()

    def _state(self, state: str) -> None:
        if state == "CONNECTED":
            self._log.setLevel(logging.WARNING)
            self._silent_since = None
            self._up.set()
        else:
            self._log.setLevel(_NOTES)
            self._down_since = time.monotonic()
            self._up.clear()
            self.ended = self.ended or state == "LOST"
        self._on_event()

    # ----------------------------------------------------------------------------------------------------- requests

    def fetch(self, asks: Sequence[Ask]) -> list[Any]:
        """The responses, in order; None where there is no such node. Unreachable: not all of them came."""
        responses: list[Any] = []
        for first in range(0, len(asks), CHUNK):
            self._wait_up()
            with self._faults():
                sent = [self._sent(ask(self._client)) for ask in asks[first : first + CHUNK]]
                patience = self._wait if self._responds else self._wait / IMPATIENT
                responses += [self._found(each, time.monotonic() + patience) for each in sent]
        return responses

    def _found(self, sent: Any, deadline: float) -> Any:
        try:
            return self._response(sent, deadline)
        except NoNodeError:
            return None

    def _sent(self, sent: Any) -> Any:
        if self._silent_since is None:
            self._silent_since = time.monotonic()
        return sent

    def _response(self, sent: Any, deadline: float) -> Any:
        try:
            response = sent.get(timeout=max(0.0, deadline - time.monotonic()))
        except KazooTimeoutError:
            self._responds = False
            sent.rawlink(self._came_late)
            self._leave_silent()
            raise
        except (NoNodeError, NodeExistsError):
            self._heard()
            raise
        self._heard()
        return response

    def _came_late(self, sent: Any) -> None:
        """On a thread of kazoo."""
        if sent.successful():
            self._heard()

    def _heard(self) -> None:
        self._responds, self._silent_since = True, None

    def _leave_silent(self) -> None:
        """A process that is suspended keeps its connections, and one behind a cut network seems to."""
        since = self._silent_since
        if since is not None and time.monotonic() - since >= max(self._wait, self.granted_ms / 1000 / SILENCE):
            self._silent_since = None
            self._handler.leave()

    def commit(self, operations: Callable[[TransactionRequest], None]) -> bool:
        """All of them, or none: False when a version is another one, or a node is not as it was expected. Unreachable:
        nobody knows. A Fault is a certain no."""
        made = self._client.transaction()
        operations(made)
        with self._faults():
            results = self._response(self._sent(made.commit_async()), time.monotonic() + self._wait)
        for result in results:
            if isinstance(result, _FORBIDDEN):
                raise Fault(self._forbidden())
        unexpected = [each for each in results if isinstance(each, Exception) and not isinstance(each, _EXPECTED)]
        if unexpected:
            raise Fault(f"ZooKeeper refuses a change: {unexpected[0]!r}")
        return not any(isinstance(result, Exception) for result in results)

    def make(self, paths: Sequence[str], data: bytes = b"") -> None:
        """Nodes that stay; those that exist stay as they are."""
        for path in paths:
            self._wait_up()
            with self._faults(), suppress(NodeExistsError):
                self._response(self._sent(self._client.create_async(path, data)), time.monotonic() + self._wait)

    def make_own(self, path: str) -> None:
        """A node that ends with the session."""
        with self._faults():
            sent = self._sent(self._client.create_async(path, b"", ephemeral=True))
            self._response(sent, time.monotonic() + self._wait)

    def _wait_up(self) -> None:
        """Not for long, if it has been down for long."""
        left = self._wait - (time.monotonic() - self._down_since)
        if not self._up.is_set() and (self.ended or not self._up.wait(max(0.0, left))):
            raise Unreachable(self._why())

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except _FORBIDDEN as error:
            raise Fault(self._forbidden()) from error
        except SessionExpiredError as error:
            raise Unreachable("ZooKeeper: the session has ended") from error
        except KazooTimeoutError as error:
            raise Unreachable(f"ZooKeeper: no response within {self._wait:g} s") from error
        except (KazooException, OSError) as error:
            raise Unreachable(self._why()) from error

    def _why(self) -> str:
        return "ZooKeeper does not respond" + (f" ({self._told.warning})" if self._told.warning else "")

    def _forbidden(self) -> str:
        user = "its user" if self._address.digest else "somebody without a name (digest=FILE names one)"
        return f"ZooKeeper does not permit this to {user}"


_FORBIDDEN = (NoAuthError, InvalidACLError)
# The last two are what ZooKeeper says of all operations before and after the one that failed.
_EXPECTED = (BadVersionError, NoNodeError, NodeExistsError, RolledBackError, RuntimeInconsistency)


def _digest(address: ZookeeperAddress) -> str | None:
    if address.digest is None:
        return None
    try:
        text = Path(address.digest).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Fault(f"digest={address.digest} cannot be read: {error}") from error
    user, colon, password = text.partition(":")
    if not user or not colon or not password or "\n" in text:
        raise Fault(f"digest={address.digest} does not contain one line USER:PASSWORD")
    return text


def _tls(address: ZookeeperAddress) -> ssl.SSLContext | None:
    """The servers' certificates and names are checked."""
    if not address.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=address.ca)
        if address.cert is not None:
            context.load_cert_chain(address.cert, address.key, password="")  # of an encrypted key: no question
    except OSError as error:
        files = [each for each in (address.ca, address.cert, address.key) if each is not None]
        raise Fault(f"TLS to ZooKeeper, {', '.join(files)}: {error}") from error
    return context
