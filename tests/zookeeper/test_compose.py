"""The commands of deploy/compose-cluster.yaml, run outside of containers: three brokers, with a real ZooKeeper."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml

from broker_process import CAIRN, STOP_SECONDS, fixed_port, wait_until
from cluster.brokers import COMMAND_SECONDS, SYNC_SECONDS
from pages.page import ROOT
from zookeeper.servers import Servers

COMPOSE = ROOT / "deploy" / "compose-cluster.yaml"


def cairn(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CAIRN, *words], input=text, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
    )


@contextmanager
def service(command: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("wb") as said:
        process = subprocess.Popen([CAIRN, *command], stdout=said, stderr=said, env={**os.environ, **environment})
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(STOP_SECONDS) == 0, log.read_text()


def test_three_brokers_as_the_file_starts_them(tmp_path: Path) -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    brokers = {name: each for name, each in services.items() if name != "zookeeper"}
    ports = {name: fixed_port() for name in brokers}
    with Servers(tmp_path / "zookeeper", 1).up() as servers, ExitStack() as stack:
        for name, each in brokers.items():
            own = {
                "/data": str(tmp_path / name),
                "0.0.0.0:9092": f"127.0.0.1:{ports[name]}",
                f"{name}:9192": f"127.0.0.1:{fixed_port()}",
                "0.0.0.0:8080": "127.0.0.1:0",
                "zookeeper://zookeeper:2181/cairn": f"zookeeper://{servers.addresses[0]}/cairn",
                each["command"][each["command"].index("--advertise") + 1]: f"127.0.0.1:{ports[name]}",
            }
            secret = each["environment"]["CAIRN_CLUSTER_SECRET"].removesuffix("}").partition(":-")[2]
            environment = {**each["environment"], "CAIRN_CLUSTER_SECRET": secret}
            words = [own.get(word, word) for word in each["command"]]
            assert len(own) == sum(word in own for word in each["command"]), "each of these is in it"
            stack.enter_context(service(words, environment, tmp_path / f"{name}.log"))
        bootstrap = f"127.0.0.1:{ports['broker1']}"
        wait_until(
            lambda: cairn("cluster", "health", "-b", bootstrap).returncode == 0 and all_are_there(bootstrap),
            SYNC_SECONDS,
            "a healthy cluster",
        )
        made = cairn("topic", "create", "orders", "-p", "3", "-r", "3", "-b", bootstrap)
        assert made.returncode == 0, made.stderr
        assert cairn("produce", "orders", "-b", bootstrap, text="one\n").returncode == 0
        read = cairn("consume", "orders", "-o", "start", "-e", "-b", bootstrap)
        assert read.stdout == "one\n", read.stderr


def all_are_there(bootstrap: str) -> bool:
    said = cairn("cluster", "brokers", "-b", bootstrap).stdout
    return all(f" {rack} " in said for rack in "abc")
