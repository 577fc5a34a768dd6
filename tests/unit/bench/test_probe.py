"""How long a partition stood still is told from when its acknowledgements came."""

from __future__ import annotations

import time

import pytest

from bench.librdkafka import LoadFailed
from bench.probe import Probes, leader_of_most, longest_gap
from broker_process import wait_until
from cairnmq.local_broker import Broker

TOPIC = "probe"
SECONDS = 60.0


@pytest.mark.parametrize(
    ("times", "begin", "expected"),
    [
        ([0.0, 1.0, 5.0, 6.0], 0.0, 4.0),
        ([0.0, 1.0, 5.0, 6.0], 5.5, 1.0),  # the gap before ended before
        ([0.0, 1.0, 5.0, 6.0], 3.0, 4.0),  # one that began before, and ended later, counts whole
        ([7.0], 0.0, 0.0),
        ([], 0.0, 0.0),
    ],
)
def test_the_longest_gap_that_ends_after_a_moment(times: list[float], begin: float, expected: float) -> None:
    assert longest_gap(times, begin) == expected


def test_the_leader_of_most_is_killed_and_of_several_the_first() -> None:
    assert leader_of_most([3, 2, 2, 1, 3, 3]) == 3
    assert leader_of_most([3, 2, 1, 3, 2, 1]) == 1


def test_a_killed_broker_is_an_outage_until_it_is_back() -> None:
    with Broker(settings={"cairn.flush": "commit"}) as broker:
        broker.create_topic(TOPIC)
        with Probes({1: broker.port}, TOPIC, 1) as probes:
            wait_until(lambda: probes.all_since(0.0), SECONDS, "a first acknowledgement")
            begin = time.monotonic()
            broker.kill()
            killed = time.monotonic()
            assert not probes.all_since(killed)
            broker.start()
            back = time.monotonic()
            wait_until(lambda: probes.all_since(back), SECONDS, "an acknowledgement of the new process")
            assert probes.longest(begin) >= back - killed


def test_a_record_that_was_acknowledged_and_is_gone_fails_the_row() -> None:
    with Broker() as broker:
        broker.create_topic(TOPIC)
        with Probes({1: broker.port}, TOPIC, 1) as probes:
            wait_until(lambda: probes.all_since(0.0), SECONDS, "a first acknowledgement")
            broker.delete_topic(TOPIC)
            broker.create_topic(TOPIC)  # its offsets begin at 0 again
            wait_until(lambda: probes.each[0].lost, SECONDS, "an offset that was given out before")
            with pytest.raises(LoadFailed, match="was acknowledged, then"):
                probes.longest(0.0)
