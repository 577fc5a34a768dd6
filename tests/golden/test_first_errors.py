"""The first errors that people make: text and exit code of each, made by real processes, as first_errors.txt has them.

`WRITE_GOLDEN=1 pytest tests/golden/test_first_errors.py` writes the file again.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker_process import CAIRN, Broker, fixed_port
from cairnmq.client.admin import NewTopic
from cairnmq.client.blocking import Client
from faults.disks import fill, small_disk
from programs import require_program

PAGE = Path(__file__).with_name("first_errors.txt")
SECONDS = 120  # until a broker that should not have started is ended

Case = Callable[["Scene"], "list[str]"]


class Scene:
    """A running broker, a place for files, and what stands for ports and paths in the page."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker = broker
        self.directory = directory
        assert broker.http is not None
        self.http = broker.http.removeprefix("http://")
        self.nobody = f"127.0.0.1:{fixed_port()}"
        self.free = f"127.0.0.1:{fixed_port()}"
        self._names = {
            broker.bootstrap: "KAFKA-PORT",
            self.http: "HTTP-PORT",
            self.nobody: "NOBODY",
            self.free: "FREE-PORT",
            str(directory): "DIR",
        }

    def serve(self, *words: str, listen: str | None = None, http: str | None = None) -> list[str]:
        """`cairn serve` on ports that are free unless another is named."""
        line = ["serve", "--data", str(self.directory / "data"), "--listen", listen or self.free]
        return [*line, *(["--http", http] if http else ["--no-http"]), *words]

    def shown(self, text: str) -> str:
        for place, name in self._names.items():
            text = text.replace(place, name)
        return text


def wrong_port(scene: Scene) -> list[str]:
    return ["topic", "list", "-b", scene.http]


def url_for_address(scene: Scene) -> list[str]:
    return ["topic", "list", "-b", f"http://{scene.http}"]


def broker_down(scene: Scene) -> list[str]:
    return ["topic", "list", "-b", scene.nobody]


def kafka_port_taken(scene: Scene) -> list[str]:
    return scene.serve(listen=scene.broker.bootstrap)


def http_port_taken(scene: Scene) -> list[str]:
    return scene.serve(http=scene.http)


def bad_settings_file(scene: Scene) -> list[str]:
    path = scene.directory / "broker.toml"
    path.write_text("[cairn\n")
    return scene.serve("--config", str(path))


def missing_settings_file(scene: Scene) -> list[str]:
    return scene.serve("--config", str(scene.directory / "nowhere.toml"))


def missing_file(scene: Scene) -> list[str]:
    return ["produce", "orders", "-f", str(scene.directory / "nowhere.txt"), "-b", scene.broker.bootstrap]


def data_is_a_file(scene: Scene) -> list[str]:
    path = scene.directory / "notes.txt"
    path.write_text("not a directory\n")
    return [word.replace(str(scene.directory / "data"), str(path)) for word in scene.serve()]


def data_in_use(scene: Scene) -> list[str]:
    return [word.replace(str(scene.directory / "data"), str(scene.broker.data)) for word in scene.serve()]


def bad_address(scene: Scene) -> list[str]:
    return scene.serve(listen="999.1.1.1:9092")


def open_to_all(scene: Scene) -> list[str]:
    return scene.serve(listen="0.0.0.0:9092")


def unknown_topic(scene: Scene) -> list[str]:
    return ["consume", "nosuch", "-b", scene.broker.bootstrap]


def unknown_group(scene: Scene) -> list[str]:
    return ["group", "describe", "nosuch", "-b", scene.broker.bootstrap]


def typo_in_command(scene: Scene) -> list[str]:
    return ["prodcue", "orders"]


def typo_in_action(scene: Scene) -> list[str]:
    return ["topic", "lst"]


def typo_in_option(scene: Scene) -> list[str]:
    return ["consume", "orders", "--ofset", "start"]


def typo_in_setting(scene: Scene) -> list[str]:
    return scene.serve("--set", "num.partition=6")


def typo_in_setting_at_run_time(scene: Scene) -> list[str]:
    return ["config", "set", "log.retention.msec=1000", "-b", scene.broker.bootstrap]


def option_of_another_tool(scene: Scene) -> list[str]:
    return ["consume", "--topic", "orders", "-b", scene.broker.bootstrap]


def option_before_the_command(scene: Scene) -> list[str]:
    return ["-b", scene.broker.bootstrap, "topic", "list"]


def command_of_another_tool(scene: Scene) -> list[str]:
    return ["tail", "orders"]


def typo_in_a_json_line(scene: Scene) -> list[str]:
    lines = scene.directory / "orders.jsonl"
    lines.write_text('{"kye": "customer-1", "value": "two coffees"}\n')
    return ["produce", "coffees", "--json", "-f", str(lines), "-b", scene.broker.bootstrap]


def topic_twice(scene: Scene) -> list[str]:
    return ["topic", "create", "teas", "-b", scene.broker.bootstrap]


def unknown_partition(scene: Scene) -> list[str]:
    return ["get", "teas", "1", "0", "-b", scene.broker.bootstrap]


def unknown_broker(scene: Scene) -> list[str]:
    return ["config", "list", "--broker", "7", "-b", scene.broker.bootstrap]


def bad_offset(scene: Scene) -> list[str]:
    return ["consume", "orders", "-o", "oldest"]


def bad_number(scene: Scene) -> list[str]:
    return ["topic", "create", "orders", "-p", "many"]


CASES: list[Case] = [
    wrong_port, url_for_address, broker_down, kafka_port_taken, http_port_taken, bad_settings_file,
    missing_settings_file, missing_file, data_is_a_file, data_in_use, bad_address, open_to_all, unknown_topic,
    unknown_group, typo_in_command, typo_in_action, typo_in_option, typo_in_setting, typo_in_setting_at_run_time,
    option_of_another_tool, option_before_the_command, command_of_another_tool, typo_in_a_json_line, topic_twice,
    unknown_partition, unknown_broker, bad_offset, bad_number,
]  # fmt: skip


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("first-errors")
    broker = Broker(directory / "broker").start()
    try:
        with Client.connect(broker.bootstrap) as client:
            client.create_topics([NewTopic("teas", 1)])
        yield Scene(broker, directory)
        assert broker.stop() == 0
    finally:
        broker.close()


def run(scene: Scene, words: list[str], *before: str) -> str:
    """The command, its exit code and its text, as the page has them."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CAIRN_")}
    done = subprocess.run(
        [*before, CAIRN, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=environment,
        check=False,
    )
    assert done.stdout == ""
    text = done.stderr.replace(f"process {scene.broker.pid}", "process PID")
    return scene.shown(f"$ cairn {' '.join(words)}\n{text}exit code {done.returncode}\n")


def check(name: str, found: str) -> None:
    sections = dict(part.split("\n", 1) for part in PAGE.read_text().split("\n## ")[1:]) if PAGE.exists() else {}
    title = name.replace("_", " ")
    if os.environ.get("WRITE_GOLDEN"):
        sections[title] = found
        head = (
            "First errors: what a person does, what is printed, and the exit code. Written by test_first_errors.py.\n"
        )
        PAGE.write_text(head + "".join(f"\n## {each}\n{text.strip()}\n" for each, text in sections.items()))
    else:
        assert found.strip() == sections[title].strip()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_first_error(scene: Scene, case: Case) -> None:
    found = run(scene, case(scene))
    assert "Errno" not in found and "Traceback" not in found and "exit code 0" not in found
    check(case.__name__, found)


def test_no_permission(scene: Scene) -> None:
    """Root may write anywhere, unless it gives that right up."""
    closed = scene.directory / "closed"
    closed.mkdir(mode=0o500)
    without = (
        [require_program("setpriv"), "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    )
    words = [word.replace(str(scene.directory / "data"), str(closed / "data")) for word in scene.serve()]
    check("no_permission", run(scene, words, *without))


def test_full_disk(scene: Scene) -> None:
    with small_disk(scene.directory / "small", 1) as disk:
        fill(disk)
        words = [word.replace(str(scene.directory / "data"), str(disk / "data")) for word in scene.serve()]
        check("full_disk", run(scene, words))


def test_the_page_has_no_others() -> None:
    titles = [line.removeprefix("## ") for line in PAGE.read_text().splitlines() if line.startswith("## ")]
    known = [case.__name__ for case in CASES] + ["no_permission", "full_disk"]
    assert titles == [name.replace("_", " ") for name in known]


def test_a_browser_at_the_kafka_port_is_told(scene: Scene) -> None:
    host, _, port = scene.broker.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS) as browser:
        browser.sendall(b"GET / HTTP/1.1\r\n\r\n")
        told = browser.recv(65536).decode()
    assert told.endswith(f"This is a Kafka port; the status page is at {scene.broker.http}.\n")
