"""`zookeeper://h:p,h:p,h:p/chroot?ca=FILE` as a value: where the servers are, and how they are spoken to."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from cairnmq.types import host_port

SCHEME = "zookeeper"
PORT = 2181
ROOT = "/cairnmq"
"""Of an address that names no path: what others keep at the top stays apart."""

_FILES = ("ca", "cert", "key", "digest")
_FORM = "write zookeeper://HOST:PORT,HOST:PORT,HOST:PORT/PATH"


class ZookeeperAddress(Struct, frozen=True):
    """`ca`, `cert`, `key`: PEM files, for TLS. `digest`: a file with USER:PASSWORD."""

    servers: tuple[str, ...]  # HOST:PORT
    root: str = ROOT
    tls: bool = False
    ca: str | None = None  # None: what the system trusts
    cert: str | None = None
    key: str | None = None
    digest: str | None = None

    @property
    def hosts(self) -> str:
        return ",".join(self.servers)

    def __str__(self) -> str:
        """Without files: for people."""
        return f"{SCHEME}://{self.hosts}{self.root}"


def is_zookeeper(metadata: str) -> bool:
    """Whether `--metadata` means ZooKeeper."""
    return metadata.partition(":")[0].lower() == SCHEME


def parse_zookeeper(text: str) -> ZookeeperAddress:
    """ValueError with a sentence about what is wrong."""
    parts = urlsplit(text)
    if parts.scheme != SCHEME or not text.lower().startswith(f"{SCHEME}://") or parts.fragment:
        raise ValueError(f"{text} is not an address of ZooKeeper; {_FORM}")
    if "@" in parts.netloc:
        raise ValueError(f"{text} names a user: write ?digest=FILE, a file that contains USER:PASSWORD")
    servers = tuple(_server(text, one.strip()) for one in parts.netloc.split(","))
    if len(set(servers)) != len(servers):
        raise ValueError(f"{text} names a server twice")
    files, tls = _options(text, parts.query)
    return ZookeeperAddress(servers, _root(text, parts.path), tls, **files)


def _server(text: str, one: str) -> str:
    try:
        parts = urlsplit(f"//{one}")
        port = parts.port if parts.port is not None else PORT
    except ValueError:
        raise ValueError(f"{text}: {one!r} is not HOST:PORT with a port from 1 to 65535") from None
    if not parts.hostname or port == 0 or parts.path or one.endswith(":"):
        raise ValueError(f"{text}: {one!r} is not HOST:PORT; {_FORM}")
    return host_port(parts.hostname, port)


def _root(text: str, path: str) -> str:
    levels = path.strip("/").split("/")
    if levels == [""]:
        return ROOT
    if any(each in ("", ".", "..", "zookeeper") or not each.isprintable() for each in levels):
        raise ValueError(f"{text}: {path} cannot be a path in ZooKeeper")
    return "/" + "/".join(levels)


def _options(text: str, query: str) -> tuple[dict[str, str], bool]:
    found, tls = dict[str, str](), ""
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "tls":
            if value not in ("yes", "no"):
                raise ValueError(f"{text}: tls={value} is neither yes nor no")
            tls = value
        elif name not in _FILES:
            raise ValueError(f"{text}: {name} is unknown; there are tls, {', '.join(_FILES)}")
        elif not value:
            raise ValueError(f"{text}: {name} names no file")
        else:
            found[name] = value
    if ("cert" in found) != ("key" in found):
        raise ValueError(f"{text}: a certificate needs its key, and a key its certificate: name both")
    has_files = "ca" in found or "cert" in found
    if has_files and tls == "no":
        raise ValueError(f"{text}: tls=no has no use for certificates")
    return found, has_files or tls == "yes"
