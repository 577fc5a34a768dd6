"""How two brokers meet: who they are, that both know the cluster's secret, and which version they speak.

    connecting                          accepting
    Hello (own nonce)          ->
                               <-       Hello (own nonce)
    Prove (HMAC)               ->
                               <-       Welcome (version, HMAC)

Each HMAC covers both Hellos and the role of the side that sends it, so it is good for this one meeting and cannot be
sent back. The connecting side proves first: a stranger is given nothing that he could try secrets on.
"""

from __future__ import annotations

import hashlib
import hmac

from msgspec import Struct

from cairnmq.types import Buffer
from cairnmq.wire.internal import (
    ANY_BROKER,
    PURPOSES,
    TEXT_MAX,
    VERSION_MAX,
    VERSION_MIN,
    Failed,
    Failure,
    Hello,
    Prove,
    Welcome,
    decode,
    encode,
)
from cairnmq.wire.primitives import Malformed

NONCE_BYTES = 32

_CONNECTING, _ACCEPTING = b"cairn connecting", b"cairn accepting"


class Identity(Struct, frozen=True):
    """Who a broker is, and the versions of messages between brokers that it speaks."""

    cluster_id: str
    broker: int
    broker_epoch: int
    min_version: int = VERSION_MIN
    max_version: int = VERSION_MAX


class LinkRefused(Exception):
    """Why there is no link, in words for the log of either side."""

    def __init__(self, code: Failure, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text

    def message(self) -> bytes:
        """The header that tells the other side."""
        return encode(Failed(self.code, self.text[:TEXT_MAX]))


def common_version(one: Identity | Hello, other: Identity | Hello) -> int:
    """The highest version that both speak."""
    version = min(one.max_version, other.max_version)
    if version < max(one.min_version, other.min_version):
        ranges = [f"{each.min_version} to {each.max_version}" for each in (one, other)]
        text = (
            f"brokers {one.broker} and {other.broker} speak versions {ranges[0]} and {ranges[1]}: upgrade one of them"
        )
        raise LinkRefused(Failure.NO_COMMON_VERSION, text)
    return version


def proof_of_secret(secret: str | None, cluster_id: str) -> bytes:
    """What brokers compare in the metadata of their cluster; empty without a secret. Whoever reads it cannot connect
    with it."""
    if not secret:
        return b""
    return hmac.digest(secret.encode(), b"cairn cluster " + cluster_id.encode(), hashlib.sha256).hex().encode()


def _proof(secret: bytes | None, role: bytes, hellos: list[bytes]) -> bytes:
    if secret is None:
        return b""
    parts = [role, *hellos]
    return hmac.digest(secret, b"".join(len(part).to_bytes(4, "big") + part for part in parts), hashlib.sha256)


def _check_proof(own: bytes, given: bytes, other: int) -> None:
    """`own`: what it must be; empty if this broker has no secret."""
    if bool(own) != bool(given):
        which = f"broker {other} has none" if own else f"broker {other} has one, this broker none"
        text = f"cairn.cluster.secret must be the same on all brokers: {which}"
        raise LinkRefused(Failure.SECRET_MISSING, text)
    if not hmac.compare_digest(own, given):
        raise LinkRefused(Failure.SECRET_WRONG, f"broker {other} has another cairn.cluster.secret")


def _read_hello(header: Buffer, own: Identity) -> Hello:
    """What the other side says of itself, if a link with it makes sense at all."""
    try:
        hello = decode(Hello, header)
    except Malformed as error:
        raise LinkRefused(Failure.MALFORMED, str(error)) from error
    if hello.cluster_id != own.cluster_id:
        text = f"broker {hello.broker} belongs to cluster {hello.cluster_id}, broker {own.broker} to {own.cluster_id}"
        raise LinkRefused(Failure.OTHER_CLUSTER, text)
    if hello.to not in (own.broker, ANY_BROKER):
        raise LinkRefused(Failure.OTHER_BROKER, f"broker {own.broker} is at this address, not {hello.to}")
    if hello.broker == own.broker or hello.broker < 0:
        text = f"a broker with id {hello.broker} cannot have a link to broker {own.broker}"
        raise LinkRefused(Failure.OTHER_BROKER, text)
    if hello.purpose not in PURPOSES:
        raise LinkRefused(Failure.NOT_SERVED, f"links of purpose {hello.purpose!r} are not known")
    return hello


class Connecting:
    """The side that connected. `to`: the broker that it wants to reach."""

    def __init__(
        self, own: Identity, secret: bytes | None, number: int, purpose: str, nonce: bytes, to: int = ANY_BROKER
    ) -> None:
        self.purpose = purpose
        self._own = own
        self._secret = secret
        self._to = to
        self._peer: Hello | None = None
        hello = Hello(
            own.cluster_id, own.broker, own.broker_epoch, number, purpose, own.min_version, own.max_version, nonce, to
        )
        self.hello = encode(hello)
        self._hellos = [self.hello]

    def greeted(self, header: bytes) -> bytes:
        """The header of Prove, in response to the other side's Hello."""
        peer = _read_hello(header, self._own)
        if self._to not in (peer.broker, ANY_BROKER):
            raise LinkRefused(Failure.OTHER_BROKER, f"broker {peer.broker} is at this address, not {self._to}")
        self._peer = peer
        self._hellos.append(header)
        return encode(Prove(_proof(self._secret, _CONNECTING, self._hellos)))

    def welcomed(self, header: bytes) -> Identity:
        """The other side, with the version of both as its range."""
        try:
            welcome = decode(Welcome, header)
        except Malformed as error:
            raise LinkRefused(Failure.MALFORMED, str(error)) from error
        if self._peer is None:
            raise LinkRefused(Failure.MALFORMED, "a Welcome came before a Hello")
        _check_proof(_proof(self._secret, _ACCEPTING, self._hellos), welcome.proof, self._peer.broker)
        version = common_version(self._own, self._peer)
        if welcome.version != version:
            text = f"broker {self._peer.broker} chose version {welcome.version}, not {version}"
            raise LinkRefused(Failure.NO_COMMON_VERSION, text)
        return Identity(self._peer.cluster_id, self._peer.broker, self._peer.broker_epoch, version, version)


class Accepting:
    """The side that was connected to. Nothing that it is told counts before `proved`."""

    def __init__(self, own: Identity, secret: bytes | None, nonce: bytes) -> None:
        self._own = own
        self._secret = secret
        self._nonce = nonce
        self._peer: Hello | None = None
        self._hellos: list[bytes] = []
        self.version = 0

    def greeted(self, header: bytes) -> bytes:
        """The header of the Hello that responds to the other side's."""
        if self._peer is not None:
            raise LinkRefused(Failure.MALFORMED, "a second Hello came")
        peer = _read_hello(header, self._own)
        self.version = common_version(self._own, peer)
        own = self._own
        hello = Hello(
            own.cluster_id, own.broker, own.broker_epoch, peer.link_number, peer.purpose,
            own.min_version, own.max_version, self._nonce, peer.broker,
        )  # fmt: skip
        self._peer = peer
        self._hellos = [header, encode(hello)]
        return self._hellos[1]

    def proved(self, header: bytes) -> Hello:
        """The other side, now known to be what it said."""
        try:
            prove = decode(Prove, header)
        except Malformed as error:
            raise LinkRefused(Failure.MALFORMED, str(error)) from error
        if self._peer is None:
            raise LinkRefused(Failure.MALFORMED, "a proof came before a Hello")
        _check_proof(_proof(self._secret, _CONNECTING, self._hellos), prove.proof, self._peer.broker)
        return self._peer

    def welcome(self) -> bytes:
        """The header of the Welcome that ends the handshake."""
        return encode(Welcome(self.version, _proof(self._secret, _ACCEPTING, self._hellos)))
