"""docs/testing-your-app.md is true: its tests pass as printed, by pytest in a process of its own with our plugin."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import cairnmq
from broker_process import has_ended, wait_until
from cairnmq.errors import Fault

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "testing-your-app.md"
BLOCKS = {name: code for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(), re.DOTALL)}
PATIENCE = 300


def run_pytest(directory: Path, *arguments: str) -> str:
    """Only our plugin is loaded, so that nothing else of this environment counts."""
    command = [sys.executable, "-m", "pytest", "-p", "cairnmq.pytest_plugin", "-q", "--rootdir", str(directory)]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        [*command, *arguments],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_page_has_all_its_examples() -> None:
    expected = {"test_orders.py", "test_restart.py", "test_async.py", "test_faststream.py", "conftest.py"}
    assert set(BLOCKS) == expected


@pytest.mark.parametrize("name", [name for name in BLOCKS if name.startswith("test_")])
def test_example(tmp_path: Path, name: str) -> None:
    (tmp_path / "conftest.py").write_text(BLOCKS["conftest.py"])
    (tmp_path / name).write_text(BLOCKS[name])
    assert " passed" in run_pytest(tmp_path)


def test_settings_topics_and_workers(tmp_path: Path) -> None:
    """Settings from the file and the command line, a marked topic, and a broker for each worker of xdist."""
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\ncairn_settings =\n    num.partitions=4\n    message.max.bytes=5000\n"
    )
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "from cairnmq.client.blocking import Client\n"
        "from cairnmq.client.admin import BROKER_RESOURCE, TOPIC_RESOURCE\n"
        "@pytest.mark.cairn_topic(partitions=3, retention_ms=60000)\n"
        "@pytest.mark.parametrize('turn', range(4))\n"
        "def test_marked(cairn_broker, cairn_topic, turn):\n"
        "    with Client.connect(cairn_broker.bootstrap) as client:\n"
        "        assert len(client.topic(cairn_topic).partitions) == 3\n"
        "        rows = {row.name: row.value for row in client.describe_configs(TOPIC_RESOURCE, cairn_topic)}\n"
        "        assert rows['retention.ms'] == '60000'\n"
        "        rows = {row.name: row.value for row in client.describe_configs(BROKER_RESOURCE, '1')}\n"
        "        assert (rows['num.partitions'], rows['message.max.bytes']) == ('4', '7000')\n"
    )
    run_pytest(tmp_path, "-p", "xdist", "-n", "2", "--cairn-set", "message.max.bytes=7000")


def test_kill_and_restart_keep_port_and_data() -> None:
    with cairnmq.Broker(http=True) as broker:
        broker.create_topic("kept", 2)
        port, first = broker.port, broker.pid
        broker.kill()
        assert not broker.running
        broker.start()
        broker.restart()
        assert broker.port == port and broker.pid != first
        broker.delete_topic("kept")  # it is there
        assert broker.url is not None and broker.url.startswith("http://127.0.0.1:")
        data = broker.data
        assert data.exists()
    assert not data.exists(), "temporary data go with the broker"


def test_data_of_your_own_stay(tmp_path: Path) -> None:
    with cairnmq.Broker(data=tmp_path / "mine") as broker:
        broker.create_topic("kept")
    with cairnmq.Broker(data=tmp_path / "mine") as broker:
        broker.delete_topic("kept")


def test_a_broker_that_cannot_start_says_why() -> None:
    with pytest.raises(Fault, match="did you mean num.partitions"):
        cairnmq.Broker(settings={"num.partition": 3}).__enter__()
    with pytest.raises(Fault, match="was not started"):
        _ = cairnmq.Broker().bootstrap


def test_async_context() -> None:
    async def scenario() -> None:
        async with cairnmq.Broker() as broker:
            assert broker.running
        assert not broker.running

    asyncio.run(scenario())


def test_the_broker_ends_with_the_program(tmp_path: Path) -> None:
    """Even if that is killed; and it does not end with the thread that started it."""
    program = (
        "import threading, time, cairnmq\n"
        "broker = cairnmq.Broker()\n"
        "starter = threading.Thread(target=broker.start)\n"
        "starter.start(); starter.join(); time.sleep(0.5)\n"
        "print(broker.pid, broker.running, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        pid, alive = running.stdout.readline().split()
        assert alive == "True"
        broker = psutil.Process(int(pid))
        running.kill()
    wait_until(lambda: has_ended(broker), 60, "the end of a broker whose program was killed")


def test_python_m_cairnmq() -> None:
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "cairnmq", "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith(f"cairn {cairnmq.__version__}"), (done, time.monotonic() - started)
