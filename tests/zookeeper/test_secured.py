"""ZooKeeper behind TLS, and nodes that belong to one user."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from broker_process import wait_until
from cairnmq.errors import Fault, Unreachable
from cairnmq.metadata.store import Away
from cairnmq.metadata.zookeeper import ZookeeperStore
from cairnmq.metadata.zookeeper_address import parse_zookeeper
from programs import require_program
from unit.metadata.conformance import done
from zookeeper.harness import SECONDS, SESSION_MS, ZookeeperHarness
from zookeeper.servers import Servers


class Authority:
    """Makes keys and certificates of its own, as PEM files."""

    def __init__(self, directory: Path, name: str) -> None:
        self.openssl = require_program("openssl")
        self.directory = directory / name
        self.directory.mkdir()
        self.ca = self.directory / "ca.pem"
        self._run(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", "ca.key",
            "-out", "ca.pem",
        )  # fmt: skip

    def certify(self, name: str, host: str) -> Path:
        """A file with key and certificate; those alone lie beside it."""
        (self.directory / f"{name}.ext").write_text(f"subjectAltName={host}\n")
        self._run(
            "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out",
            f"{name}.csr",
        )  # fmt: skip
        self._run(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", f"{name}.ext", "-out", f"{name}.pem",
        )  # fmt: skip
        both = self.directory / f"{name}-both.pem"
        both.write_text((self.directory / f"{name}.key").read_text() + (self.directory / f"{name}.pem").read_text())
        return both

    def _run(self, *words: str) -> None:
        subprocess.run([self.openssl, *words], cwd=self.directory, check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("keys"), "ours")


@pytest.fixture(scope="module")
def secured(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """A server that asks for certificates."""
    server = authority.certify("server", "IP:127.0.0.1")
    servers = Servers(
        tmp_path_factory.mktemp("zookeeper"),
        lines={
            "secureClientPort": "PORT",
            "secureClientPortAddress": "127.0.0.1",
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(server),
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": str(authority.ca),
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": "need",
        },
    )
    try:
        servers.launch()
        yield servers
    finally:
        servers.kill()


def opened(url: str) -> ZookeeperStore:
    return ZookeeperStore(parse_zookeeper(url), wait_ms=5000, start_ms=5000)


def test_tls_with_certificates_of_both_sides(secured: Servers, authority: Authority) -> None:
    authority.certify("broker", "DNS:broker")
    place = authority.directory
    files = f"ca={authority.ca}&cert={place}/broker.pem&key={place}/broker.key"
    url = f"zookeeper://{secured.addresses[0]}/x?{files}"
    stores: list[ZookeeperStore] = []

    def is_open() -> bool:
        try:
            stores.append(opened(url))
        except Unreachable:
            return False
        return True

    wait_until(is_open, SECONDS, "ZooKeeper with TLS")
    with closing(stores[0]) as store:
        revision = done(store.put("k/a", b"x" * 200_000))
        entry = store.get("k/a")
        assert entry is not None and (len(entry.value), entry.revision) == (200_000, revision)
        session = store.session(SESSION_MS)
        assert not isinstance(session, Away) and session.renew() is True


def test_who_has_no_certificate_or_trusts_nobody_is_not_connected(
    secured: Servers, authority: Authority, tmp_path: Path
) -> None:
    address = secured.addresses[0]
    with pytest.raises(Unreachable):
        opened(f"zookeeper://{address}/x?ca={authority.ca}")
    stranger = Authority(tmp_path, "stranger")
    with pytest.raises(Unreachable, match="(?i)certificate verify failed"):
        opened(f"zookeeper://{address}/x?ca={stranger.ca}")
    with pytest.raises(Unreachable, match="(?i)certificate verify failed"):
        opened(f"zookeeper://localhost:{address.rpartition(':')[2]}/x?ca={authority.ca}")
    with pytest.raises(Unreachable):
        opened(f"zookeeper://{address}/x")


def test_nodes_belong_to_the_user_who_made_them(harness: ZookeeperHarness, tmp_path: Path) -> None:
    (tmp_path / "user").write_text("cairn:a password: with colons\n")
    (tmp_path / "other").write_text("other:password")
    url = harness.url()
    with closing(opened(f"{url}?digest={tmp_path}/user")) as store:
        done(store.put("k/a", b"1"))
        session = store.session(SESSION_MS)
        assert not isinstance(session, Away)
        done(session.register("live/1", b"1"))
        for other in (url, f"{url}?digest={tmp_path}/other"):
            with pytest.raises(Fault, match="does not permit"):
                opened(other)
        harness.passages.refuse()
        harness.passages.accept()
        harness.wait_back(store)
        done(store.put("k/a", b"2"))
        assert session.renew() is True
        with closing(opened(f"{url}?digest={tmp_path}/user")) as again:
            assert again.get("k/a") == store.get("k/a")
