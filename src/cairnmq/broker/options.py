"""What `cairn serve` was asked to do: its flags as a value. Imports nothing of the broker, so the command starts fast.

Flags win over settings: `with_settings` fills only what no flag named, so a server.properties file with `listeners`,
`log.dirs`, `node.id` or `zookeeper.connect` works unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address

from msgspec import Struct
from msgspec.structs import replace

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.types import host_port

PLAINTEXT = "PLAINTEXT"
SECRET = "cairn.cluster.secret"

_IPV4_CHARACTERS = frozenset("0123456789.")


class Address(Struct, frozen=True):
    """A place to listen at or to be found at; port 0 asks for any free one."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return host_port(self.host, self.port)


class ListenerSpec(Struct, frozen=True):
    """One listening address of the broker."""

    name: str
    protocol: str
    address: Address
    advertised: Address  # what its clients are told to connect to

    @property
    def may_bypass_transport(self) -> bool:
        """Whether bytes may be written to the socket itself. Never where the transport encrypts them."""
        return self.protocol == PLAINTEXT


class ServeOptions(Struct, frozen=True, kw_only=True):
    """The flags of `cairn serve` with their defaults. `given` names the fields that a flag set."""

    data: str = "./cairn-data"
    journal_dir: str | None = None  # None: DIR/journal
    listen: Address = Address("127.0.0.1", 9092)
    advertise: Address | None = None  # None: what `listen` is bound to
    http: Address | None = Address("127.0.0.1", 8080)  # None: --no-http
    insecure: bool = False
    node_id: int = 1
    rack: str | None = None
    metadata: str = "sqlite"  # in the data directory; sqlite:PATH: a file that the brokers of this machine share
    internal: Address | None = None  # for the other brokers of a cluster; None: any free port of --listen's host
    config: str | None = None
    settings: tuple[tuple[str, str], ...] = ()  # --set, in order
    ready_file: str | None = None
    accept_loss: bool = False
    given: frozenset[str] = frozenset()

    def with_settings(self, values: Mapping[str, str]) -> ServeOptions | Refusal:
        """These options, with the fields that no flag set taken from Kafka's settings of the same meaning."""
        try:
            return replace(self, **{k: v for k, v in _from_settings(values).items() if k not in self.given})
        except ValueError as error:
            return Refusal(ErrorCode.INVALID_CONFIG, str(error))

    @property
    def shared_metadata(self) -> str | None:
        """The metadata file that this broker shares with others; None: it is alone."""
        store, colon, path = self.metadata.partition(":")
        return path if store == "sqlite" and colon else None

    def refusal(self, values: Mapping[str, str] | None = None) -> Refusal | None:
        """Why these options must not be served, if they must not. The server asks again after `with_settings`, with all
        settings: only they tell whether brokers have a secret."""
        why = self._store_refusal() or self._exposure(values)
        if why is None and values is not None:
            why = self._loss_refusal()
        return Refusal(ErrorCode.INVALID_CONFIG, why) if why else None

    def _store_refusal(self) -> str | None:
        if self.metadata.startswith("zookeeper:"):
            return (
                f"metadata store {self.metadata}: only sqlite is supported, alone or as sqlite:PATH; "
                "ZooKeeper comes with a later version"
            )
        if self.shared_metadata is None:
            if self.metadata != "sqlite":
                return f"metadata store {self.metadata}: only sqlite is supported, alone or as sqlite:PATH"
            if self.internal is not None:
                return f"--internal {self.internal} is for brokers of a cluster; add --metadata sqlite:PATH"
        elif self.shared_metadata in ("", ":memory:") or self.shared_metadata.startswith("//"):
            return f"--metadata {self.metadata} names no file; write sqlite:PATH, the same on each broker"
        return None

    def _loss_refusal(self) -> str | None:
        """In a cluster a start decides nothing about what is lost: other replicas may have it."""
        if self.accept_loss and self.shared_metadata is not None:
            return (
                "--accept-loss is for a broker that is alone; start without it: other replicas have what this one "
                "lacks. For a journal that stays without a leader see `cairn cluster elect --unclean J`"
            )
        return None

    def _exposure(self, values: Mapping[str, str] | None) -> str | None:
        if self.insecure:
            return None
        for flag, address in (("--listen", self.listen), ("--http", self.http)):
            if address is not None and not address.loopback:
                return (
                    f"{flag} {address} is reachable from other machines and there is no authentication; "
                    "listen on 127.0.0.1, or add --insecure if the network is trusted"
                )
        if self.internal is not None and not self.internal.loopback and values is not None:
            if not values.get(SECRET):
                return (
                    f"--internal {self.internal} is reachable from other machines and brokers have no secret; "
                    f"listen on 127.0.0.1, set {SECRET}, or add --insecure if the network is trusted"
                )
        return None


def parse_address(text: str) -> Address:
    """`HOST:PORT`, `:PORT` (127.0.0.1) or `[IPV6]:PORT`; ValueError with a sentence otherwise."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT with a port from 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: write an IPv6 address in brackets, [::1]:{port}")
    elif host and set(host) <= _IPV4_CHARACTERS and not _is_ip(host):
        raise ValueError(f"{text!r}: {host} is not an IP address")
    return Address(host or "127.0.0.1", int(port))


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _from_settings(values: Mapping[str, str]) -> dict[str, object]:
    fields: dict[str, object] = {}
    if listeners := values.get("listeners"):
        fields["listen"] = _listener("listeners", listeners)
    if advertised := values.get("advertised.listeners"):
        fields["advertise"] = _listener("advertised.listeners", advertised)
    if data := values.get("log.dirs") or values.get("log.dir"):
        if "," in data:
            raise ValueError(
                f"log.dirs={data}: one data directory is supported; name one (--journal-dir puts journals elsewhere)"
            )
        fields["data"] = data.strip()
    if node := values.get("node.id") or values.get("broker.id"):
        if not node.strip().isdecimal():
            raise ValueError(f"node.id={node} is not a whole number of at least 0")
        fields["node_id"] = int(node)
    if rack := values.get("broker.rack"):
        fields["rack"] = rack
    if quorum := values.get("zookeeper.connect"):
        fields["metadata"] = f"zookeeper://{quorum}"
    return fields


def _listener(name: str, text: str) -> Address:
    """`PLAINTEXT://host:port` or `host:port`; a list or another protocol is refused, not half served."""
    if "," in text:
        raise ValueError(f"{name}={text}: one listener is supported")
    protocol, separator, rest = text.strip().rpartition("://")
    if separator and protocol.upper() != PLAINTEXT:
        raise ValueError(f"{name}={text}: {protocol} is not supported yet; use PLAINTEXT://HOST:PORT")
    try:
        return parse_address(rest)
    except ValueError as error:
        raise ValueError(f"{name}={text}: {error}") from None
