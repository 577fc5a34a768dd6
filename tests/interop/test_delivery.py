"""The examples of docs/delivery.md do what it says, killed in the middle."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from apache_kafka.records import read_all
from broker_process import Broker, fixed_port, wait_until
from conftest import QUICK_GROUPS
from interop.clients.librdkafka import LibrdkafkaClient

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = DOCS / "examples"
COUNT = 300
ORDERS = 1000
KILLS = 4


class Example:
    """A program of docs/examples; what it printed over all its lives."""

    def __init__(self, directory: Path, bootstrap: str, name: str) -> None:
        self.line = [sys.executable, str(EXAMPLES / f"{name}.py"), bootstrap]
        self.output = directory / f"{name}.out"
        self.output.touch()
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, *arguments: str) -> None:
        subprocess.run([*self.line, *arguments], timeout=60, check=True)

    def start(self, *arguments: str) -> None:
        with self.output.open("ab") as output:
            self.process = subprocess.Popen([*self.line, *arguments], stdout=output)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def revive(self, *arguments: str) -> None:
        """As a supervisor does, when it has ended."""
        if self.process is None or self.process.poll() is not None:
            self.start(*arguments)

    def lines(self) -> list[str]:
        return self.output.read_text().splitlines()


@pytest.fixture
def broker(make_broker: Callable[..., Broker]) -> Broker:
    made = make_broker(settings=QUICK_GROUPS, port=fixed_port()).start()
    for topic in ("readings", "parcels", "orders", "invoices"):
        LibrdkafkaClient(made.bootstrap).create_topic(topic, 2)
    return made


@pytest.fixture
def example(broker: Broker, tmp_path: Path) -> Iterator[Callable[[str], Example]]:
    made: list[Example] = []

    def make(name: str) -> Example:
        made.append(Example(tmp_path, broker.bootstrap, name))
        return made[-1]

    yield make
    for one in made:
        one.kill()


def kill_while_it_handles(program: Example) -> None:
    """In the middle of a batch: each has 20 records, and handling one takes 10 ms."""
    for _ in range(KILLS):
        before = len(program.lines())
        program.start("receive")
        wait_until(lambda before=before: len(program.lines()) > before, 120, "a record handled")
        program.kill()
    program.start("receive")


def wait_done(program: Example, broker: Broker, group: str, topic: str) -> None:
    """Until all is committed, and it prints nothing more."""
    admin = LibrdkafkaClient(broker.bootstrap)
    ends = [admin.bounds(topic, partition)[1] for partition in (0, 1)]
    wait_until(lambda: [admin.committed(group, topic, n) or 0 for n in (0, 1)] == ends, 120, "the last commit")
    wait_quiet(program)


def wait_quiet(program: Example, seconds: float = 3.0) -> None:
    """Until it has printed nothing for some time."""
    deadline = time.monotonic() + 60
    last, since = -1, time.monotonic()
    while time.monotonic() - since < seconds:
        assert time.monotonic() < deadline, "no end of what it prints"
        if len(program.lines()) != last:
            last, since = len(program.lines()), time.monotonic()
        time.sleep(0.1)


def test_at_most_once(broker: Broker, example: Callable[[str], Example]) -> None:
    program = example("at_most_once")
    program.run("send", str(COUNT))
    kill_while_it_handles(program)
    wait_done(program, broker, "thermometer", "readings")
    handled = Counter(program.lines())
    assert set(handled.values()) == {1}, "something was handled twice"
    assert handled.keys() <= {f"reading {n}" for n in range(COUNT)}
    assert COUNT - 20 * KILLS <= len(handled) < COUNT, "a kill skips the rest of a batch, and nothing else"


def test_at_least_once(broker: Broker, example: Callable[[str], Example]) -> None:
    program = example("at_least_once")
    program.run("send", str(COUNT))
    kill_while_it_handles(program)
    wait_done(program, broker, "shipping", "parcels")
    handled = Counter(program.lines())
    assert handled.keys() == {f"parcel {n}" for n in range(COUNT)}
    assert COUNT < handled.total() <= COUNT + 20 * KILLS, "a kill repeats what was handled of a batch, and nothing else"


class Shop:
    """Orders without a pause: however fast the transformer is, there is something left when it is killed."""

    def __init__(self, bootstrap: str, count: int) -> None:
        self.producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
        self.count = count
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self.sell, daemon=True)

    def sell(self) -> None:
        while not self.closing.wait(0.01):
            for _ in range(5):
                self.producer.produce("orders", f"order {self.count}")
                self.count += 1
            self.producer.poll(0)

    def __enter__(self) -> Shop:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self.thread.join()
        assert self.producer.flush(30) == 0, "orders that the broker did not take"


def test_exactly_once(broker: Broker, example: Callable[[str], Example]) -> None:
    """The transformer is killed in the middle, again and again, and the broker once."""
    program = example("exactly_once")
    program.run("send", str(ORDERS))
    with Shop(broker.bootstrap, ORDERS) as shop:
        kill_while_it_transforms(broker, program)
    wanted = Counter(f"invoice {n}" for n in range(shop.count))

    def done() -> bool:
        program.revive("transform")
        return len(invoices(broker)) >= shop.count

    wait_until(done, 600, "all invoices")  # the slower the kills, the more orders there are
    assert Counter(invoices(broker)) == wanted
    reader = example("exactly_once")
    reader.start("receive")
    wait_until(lambda: len(reader.lines()) >= shop.count, 600, "all invoices read")
    assert Counter(reader.lines()) == wanted


def kill_while_it_transforms(broker: Broker, program: Example) -> None:
    admin = LibrdkafkaClient(broker.bootstrap)
    for victim in (program.kill, program.kill, broker.kill_tree, program.kill, program.kill):
        before = written(admin)

        def goes_on(before: int = before) -> bool:
            program.revive("transform")
            return written(admin) > before

        wait_until(goes_on, 120, "an invoice")
        victim()
        if not broker.running:
            broker.start()


def written(admin: LibrdkafkaClient) -> int:
    """Offsets given, committed or not."""
    return sum(admin.bounds("invoices", partition)[1] for partition in (0, 1))


def invoices(broker: Broker) -> list[str]:
    found = read_all(broker.bootstrap, "invoices", 2)
    return [(record.value or b"").decode() for records in found.values() for record in records]


def test_quotes_are_from_the_examples() -> None:
    text = "\n".join(path.read_text() for path in sorted(EXAMPLES.glob("*.py")))
    quotes = re.findall(r"```python\n(.*?)```", (DOCS / "delivery.md").read_text(), re.DOTALL)
    assert len(quotes) == 3
    assert [quote for quote in quotes if quote not in text] == []
