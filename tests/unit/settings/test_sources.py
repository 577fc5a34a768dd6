"""File, environment, --set and flags: who wins, and what an error says."""

from __future__ import annotations

import pytest

from cairnmq.errors import Refusal
from cairnmq.settings.broker_table import ALIASES, BROKER, FORMER_NAMES
from cairnmq.settings.known import WITHOUT_MEANING
from cairnmq.settings.sources import Loaded, load, variable


def good(**sources: object) -> Loaded:
    answer = load(**sources)  # type: ignore[arg-type]
    assert isinstance(answer, Loaded), answer
    return answer


def bad(**sources: object) -> str:
    answer = load(**sources)  # type: ignore[arg-type]
    assert isinstance(answer, Refusal), answer
    return answer.message


def test_nothing_given() -> None:
    loaded = good()
    assert loaded.config.num_partitions == 1 and loaded.warnings == ()


def test_later_sources_win() -> None:
    file = ("broker.toml", "num.partitions = 2\ncairn.journals = 2\nmax.connections = 2\nfetch.max.bytes = 2000")
    environment = {"CAIRN_NUM_PARTITIONS": "3", "CAIRN_JOURNALS": "3", "CAIRN_MAX_CONNECTIONS": "3"}
    loaded = good(
        file=file, environment=environment, sets=[("num.partitions", "4"), ("cairn.journals", "4")],
        flags={"num.partitions": "5"},
    )  # fmt: skip
    config = loaded.config
    assert (config.num_partitions, config.cairn_journals, config.max_connections, config.fetch_max_bytes) == (
        5, 4, 3, 2000
    )  # fmt: skip
    assert config.layers.static["num.partitions"] == "5"


def test_the_last_set_wins() -> None:
    assert good(sets=[("num.partitions", "4"), ("num.partitions", "6")]).config.num_partitions == 6


def test_toml_tables_lists_and_types() -> None:
    text = """
        "num.partitions" = 3
        auto.create.topics.enable = false
        log.dirs = ["one"]
        [log.retention]
        hours = 5
        [cairn]
        flush = "none"
    """
    config = good(file=("x.toml", text)).config
    assert (config.num_partitions, config.auto_create_topics_enable, config.cairn_flush) == (3, False, "none")
    assert config.layers.static["log.retention.hours"] == "5" and config.layers.static["log.dirs"] == "one"


def test_a_kafka_file_of_kraft() -> None:
    text = """
        process.roles=broker,controller
        node.id=7
        controller.quorum.bootstrap.servers=localhost:9093
        listeners=INSIDE://:9092,CONTROLLER://:9093
        advertised.listeners=INSIDE://localhost:9092,CONTROLLER://localhost:9093
        inter.broker.listener.name=INSIDE
        controller.listener.names=CONTROLLER
        listener.security.protocol.map=CONTROLLER:PLAINTEXT,INSIDE:PLAINTEXT,SSL:SSL
        num.io.threads=8
        log.dirs=/var/kafka
        num.partitions=2
        log.retention.hours=168
        # log.retention.bytes=1073741824
    """
    loaded = good(file=("server.properties", text))
    static = loaded.config.layers.static
    assert static["node.id"] == "7" and loaded.config.num_partitions == 2
    assert static["listeners"] == "PLAINTEXT://:9092"
    assert static["advertised.listeners"] == "PLAINTEXT://localhost:9092"
    warned = [warning for warning in loaded.warnings if "num.io.threads" in warning]
    assert warned == ["server.properties line 10: num.io.threads has no effect here and is ignored"]
    assert len(loaded.warnings) == len(set(loaded.warnings)) == 6


def test_a_mapped_protocol_that_cannot_be_served_is_refused() -> None:
    text = "listeners=OUT://:9092\nlistener.security.protocol.map=OUT:SASL_SSL"
    assert "TLS and SASL" in bad(file=("server.properties", text))


def test_warnings_come_once_per_name() -> None:
    loaded = good(file=("a.properties", "num.io.threads=1\nnum.io.threads=2"), sets=[("num.io.threads", "3")])
    assert loaded.warnings == ("--set num.io.threads: num.io.threads has no effect here and is ignored",)


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_older_names(alias: str, name: str) -> None:
    assert good(sets=[(alias, "5")]).config.layers.static == {name: "5"}
    assert good(sets=[(name, "6"), (alias, "5")]).config.layers.static == {name: "6"}
    assert good(file=("a.properties", f"{name}=6"), sets=[(alias, "5")]).config.layers.static == {name: "5"}


@pytest.mark.parametrize(("former", "name"), FORMER_NAMES.items())
def test_former_names(former: str, name: str) -> None:
    wanted = {name: "5000"}
    assert good(sets=[(former, "5000")]).config.layers.static == wanted
    assert good(file=("a.properties", f"{former}=5000")).config.layers.static == wanted
    assert good(file=("a.toml", f"{former} = 5000")).config.layers.static == wanted
    assert good(environment={variable(former): "5000"}).config.layers.static == wanted
    assert good(sets=[(name, "5000"), (former, "6000")]).config.layers.static == wanted
    assert name in bad(sets=[(former, "x")])


def test_errors_name_their_source_and_the_nearest_name() -> None:
    assert bad(sets=[("num.partiton", "3")]) == (
        "--set num.partiton: Unknown broker setting num.partiton; did you mean num.partitions?"
    )
    message = bad(file=("server.properties", "\nnum.partitions=x"))
    assert message.startswith("server.properties line 2: ") and "num.partitions" in message
    assert "broker.toml: " in bad(file=("broker.toml", "num.partitions = 0"))
    assert "CAIRN_NUM_PARTITIONS?" in bad(environment={"CAIRN_NUM_PARTITION": "3"})
    assert "environment CAIRN_JOURNALS" in bad(environment={"CAIRN_JOURNALS": "0"})


def test_all_errors_are_told_at_once() -> None:
    message = bad(sets=[("num.partitions", "0"), ("no.such.thing", "1")], environment={"CAIRN_NO": "1"})
    assert len(message.splitlines()) == 3


@pytest.mark.parametrize("text", ["num.partitions = ", "x = 1979-05-27", "a = 1\na = 2"])
def test_toml_that_is_none(text: str) -> None:
    assert bad(file=("broker.toml", text)).startswith("broker.toml: ")


def test_a_file_that_asks_for_an_authorizer_is_not_half_served() -> None:
    assert "access control" in bad(sets=[("authorizer.class.name", "org.example.Authorizer")])


def test_other_variables_are_not_settings() -> None:
    environment = {"CAIRN_BOOTSTRAP": "x", "CAIRN_CHAOS_SEED": "1", "HOME": "/", "CAIRNMQ_PURE": "1", "CAIRN": "x"}
    assert good(environment=environment).config.layers.static == {}


def test_every_setting_has_its_own_variable() -> None:
    names = [*BROKER, *ALIASES, *FORMER_NAMES, *WITHOUT_MEANING]
    assert len({variable(name) for name in names}) == len(names)
    assert variable("num.partitions") == "CAIRN_NUM_PARTITIONS" and variable("cairn.journals") == "CAIRN_JOURNALS"
