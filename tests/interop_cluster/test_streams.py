"""Kafka Streams with exactly_once_v2 over three brokers, of which one after the other is killed."""

from __future__ import annotations

import itertools

import pytest

from interop.test_streams import Instance, broker, instances, killed_at_work, strike  # noqa: F401
from interop_cluster.three import ThreeBrokers

# "broker": all three.
VICTIMS = ("a broker", "one", "a broker", "other", "a broker", "broker", "a broker", "a broker")


@pytest.mark.long
def test_killed_with_brokers(broker: ThreeBrokers, instances: list[Instance]) -> None:  # noqa: F811
    turn = itertools.cycle(broker.brokers)

    def hit(victim: str) -> None:
        if victim == "a broker":
            one = next(turn)
            one.kill_tree()
            one.start()
        else:
            strike(victim, broker, instances)  # type: ignore[arg-type]  # all that it needs, ThreeBrokers has

    killed_at_work(broker, instances, VICTIMS, hit)  # type: ignore[arg-type]
    assert broker.stop() == 0, broker.log_tail()
