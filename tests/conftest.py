"""What every suite shares: real brokers, the client x case table (features.py), what is long (suites.py)."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from broker_process import Broker

pytest_plugins = ["features", "suites"]

# A shell that starts us in the background has SIGINT ignored, and programs that tests press Ctrl-C on would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# An example that takes long on a busy machine is no failure.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

LIVE: list[Broker] = []
QUICK_GROUPS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
"""A first member need not wait for others, and a dead one is missed soon."""
QUICK_TIME_LIMITS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}


@pytest.fixture(scope="session")
def broker_kind() -> type[Broker]:
    """What tests take for a broker; in tests/interop_cluster it is three of them."""
    return Broker


@pytest.fixture
def make_broker(tmp_path: Path, broker_kind: type[Broker]) -> Iterator[Callable[..., Broker]]:
    """Makes brokers that end with the test; takes Broker's own arguments."""
    made: list[Broker] = []

    def make(**options: object) -> Broker:
        broker = broker_kind(tmp_path / f"broker{len(made)}", **options)  # type: ignore[arg-type]
        made.append(broker)
        LIVE.append(broker)
        return broker

    yield make
    close_all(made)


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory, broker_kind: type[Broker]) -> Iterator[Broker]:
    """One broker for all tests that only need some broker; each uses topics of its own."""
    broker = broker_kind(tmp_path_factory.mktemp("shared-broker"), settings={**QUICK_GROUPS, **QUICK_TIME_LIMITS})
    LIVE.append(broker)
    broker.start()
    yield broker
    if broker.running:
        assert broker.stop() == 0, f"SIGTERM did not end in exit code 0\n{broker.log_tail()}"
    close_all([broker])


def close_all(brokers: list[Broker]) -> None:
    problems = []
    for broker in brokers:
        if broker in LIVE:
            LIVE.remove(broker)
        try:
            broker.close()
        except AssertionError as problem:
            problems.append(str(problem))
    assert not problems, "\n".join(problems)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failed test shows the end of the log of every broker that was up."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed:
        for broker in LIVE:
            report.sections.append((f"log of {broker.directory.name}", broker.log_tail()))
