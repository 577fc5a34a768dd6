"""Options of the broker: addresses, and settings that stand in for flags."""

from __future__ import annotations

import pytest

from cairnmq.broker.options import PLAINTEXT, Address, ListenerSpec, ServeOptions, parse_address
from cairnmq.errors import Refusal


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", Address("127.0.0.1", 9092)),
        (":0", Address("127.0.0.1", 0)),
        ("[::1]:5", Address("::1", 5)),
        ("broker.example.org:65535", Address("broker.example.org", 65535)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    if not text.startswith(":"):
        assert str(address) == text


@pytest.mark.parametrize("text", ["", "9092", "h:", "h:-1", "h:65536", "h:http", "::1:9092"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError):
        parse_address(text)


def test_loopback() -> None:
    assert [Address(h, 1).loopback for h in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert [Address(h, 1).loopback for h in ("0.0.0.0", "::", "10.0.0.1", "localhost.example.org")] == [False] * 4


def test_settings_fill_what_no_flag_set() -> None:
    values = {
        "listeners": "PLAINTEXT://0.0.0.0:9192",
        "advertised.listeners": "PLAINTEXT://example.org:9292",
        "log.dirs": "/data",
        "broker.id": "5",
        "broker.rack": "r1",
    }
    made = ServeOptions().with_settings(values)
    assert isinstance(made, ServeOptions)
    assert (made.listen, made.advertise) == (Address("0.0.0.0", 9192), Address("example.org", 9292))
    assert (made.data, made.node_id, made.rack) == ("/data", 5, "r1")
    flags = ServeOptions(data="mine", node_id=2, given=frozenset({"data", "node_id"})).with_settings(values)
    assert isinstance(flags, ServeOptions)
    assert (flags.data, flags.node_id, flags.rack) == ("mine", 2, "r1")


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("listeners", "SSL://h:1", "SSL is not supported yet"),
        ("listeners", "PLAINTEXT://a:1,PLAINTEXT://b:2", "one listener"),
        ("listeners", "PLAINTEXT://a", "not HOST:PORT"),
        ("log.dirs", "/a,/b", "one data directory"),
        ("node.id", "-3", "not a whole number"),
    ],
)
def test_settings_that_cannot_be_served(name: str, value: str, why: str) -> None:
    made = ServeOptions().with_settings({name: value})
    assert isinstance(made, Refusal) and why in made.message and made.message.startswith(name)


def test_zookeeper_is_refused_until_it_exists() -> None:
    made = ServeOptions().with_settings({"zookeeper.connect": "h:2181/x"})
    assert isinstance(made, ServeOptions) and made.metadata == "zookeeper://h:2181/x"
    refusal = made.refusal()
    assert refusal is not None and "only sqlite is supported" in refusal.message


def refused(options: ServeOptions, values: dict[str, str] | None = None) -> str:
    refusal = options.refusal({} if values is None else values)
    return refusal.message if refusal is not None else ""


def test_a_shared_file_makes_a_cluster() -> None:
    made = ServeOptions(metadata="sqlite:/x/cluster.db", internal=Address("127.0.0.1", 0))
    assert (made.shared_metadata, refused(made)) == ("/x/cluster.db", "")
    assert (ServeOptions().shared_metadata, refused(ServeOptions())) == (None, "")
    assert ServeOptions(metadata="sqlite:C:/x").shared_metadata == "C:/x"


@pytest.mark.parametrize("metadata", ["sqlite:", "sqlite::memory:", "sqlite://host/x"])
def test_what_names_no_file(metadata: str) -> None:
    assert "names no file" in refused(ServeOptions(metadata=metadata))


@pytest.mark.parametrize("metadata", ["zookeeper://h:2181", "etcd:x", "SQLITE"])
def test_stores_that_do_not_exist(metadata: str) -> None:
    made = ServeOptions(metadata=metadata)
    assert made.shared_metadata is None and "only sqlite is supported" in refused(made)
    assert ("later version" in refused(made)) == metadata.startswith("zookeeper")


def test_an_internal_address_is_of_a_cluster() -> None:
    assert "add --metadata sqlite:PATH" in refused(ServeOptions(internal=Address("127.0.0.1", 1)))


def test_an_internal_address_for_other_machines_needs_a_secret() -> None:
    made = ServeOptions(metadata="sqlite:m", internal=Address("10.0.0.1", 1))
    assert "set cairn.cluster.secret" in refused(made)
    assert "set cairn.cluster.secret" in refused(made, {"cairn.cluster.secret": ""})
    assert refused(made, {"cairn.cluster.secret": "0123456789abcdef"}) == ""
    assert made.refusal() is None, "flags alone do not tell: the secret may come from a file"
    assert refused(ServeOptions(metadata="sqlite:m", internal=Address("10.0.0.1", 1), insecure=True)) == ""


def test_only_plaintext_may_bypass_its_transport() -> None:
    place = Address("127.0.0.1", 9092)
    protocols = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    allowed = [ListenerSpec("any", protocol, place, place).may_bypass_transport for protocol in protocols]
    assert allowed == [True, False, False, False]


def test_a_loss_is_accepted_by_a_broker_that_is_alone() -> None:
    made = ServeOptions(metadata="sqlite:m", accept_loss=True)
    assert "--accept-loss is for a broker that is alone" in refused(made, {})
    assert refused(ServeOptions(accept_loss=True), {}) == ""
