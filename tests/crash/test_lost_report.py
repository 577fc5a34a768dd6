"""A splitter that dies between a checkpoint and its report: consumers of committed records (librdkafka, by default) see
no others."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Producer

from broker_process import Broker, fixed_port, wait_until
from interop.clients.librdkafka import LibrdkafkaClient

SECONDS = 30.0
SETTINGS = {"log.retention.check.interval.ms": "500", "cairn.checkpoint.interval.ms": "60000"}


def test_aborted_records_stay_hidden_when_the_report_of_a_demotion_is_lost(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(port=fixed_port(), settings=SETTINGS).start()
    client = LibrdkafkaClient(broker.bootstrap)
    client.create_topic("t", 1, {"cairn.model": "dedicated"})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x"})
    producer.init_transactions(SECONDS)
    for word, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        for number in range(5):
            producer.produce("t", b"%s %d" % (word, number), partition=0)
        producer.flush(SECONDS)
        end(SECONDS)
    assert broker.stop() == 0
    segments = broker.data / "queues" / "t-0"
    assert segments.is_dir()

    broker.start(cairn_fault_point="checkpoint-report")
    client.alter_configs("t", {"cairn.model": "shared"})
    wait_until(lambda: "as the read disk has it" in broker.log(), SECONDS, f"a successor\n{broker.log_tail()}")
    expected = [b"committed %d" % number for number in range(5)]
    for number in range(3):
        producer.begin_transaction()
        expected.append(b"later %d" % number)
        producer.produce("t", expected[-1], partition=0)
        producer.commit_transaction(SECONDS)
        assert [got.value for got in client.read("t", [0], start=-2)] == expected
    wait_until(lambda: not segments.exists(), SECONDS, "the segments to go, which a pack has replaced")
    assert [got.value for got in client.read("t", [0], start=-2)] == expected
    assert broker.stop() == 0
