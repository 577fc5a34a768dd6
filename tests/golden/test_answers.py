"""Our answers beside those of Apache Kafka 4.3, recorded by record_answers.py. What differs on purpose says why."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from golden.questions import plain, questions, unsettled
from unit.broker.rig import open_rig, scenario

KAFKA: dict[str, Any] = json.loads(Path(__file__).with_name("answers.json").read_text())

# Label without its version -> why ours is another answer.
_LOG_START = "Kafka tells the log start with some errors; no client reads it there"
_NO_PARTITION = "beside an error no client looks for aborted transactions; ours are null as asked for"
_HIGHER = "fencing raises the epoch by two, so that its marker has one of its own"
_NO_TOPIC = "offsets of groups are no topic here, so none is named"
ON_PURPOSE: dict[str, str] = {
    "Produce no sequence": _LOG_START,
    "Produce gap": _LOG_START,
    "Produce new epoch in the middle": _LOG_START,
    "Produce old epoch": _LOG_START,
    "OffsetCommit by a consumer, too early": "KIP-1251 takes it for what it has held since; here it commits again",
    "OffsetFetch by a consumer, without a name": "Kafka fails inside; we say that nobody is no member",
    "Produce in a transaction, v1, gap": _LOG_START,
    "Produce in a transaction, v2, sequence goes on": _LOG_START,
    "TxnOffsetCommit v1, unknown member": "a group that has only pending offsets is not there yet",
    "DescribeTransactions v1, with offsets": _NO_TOPIC,
    "DescribeTransactions v2, ongoing": _NO_TOPIC,
    "InitProducerId transactional, by a second instance": _HIGHER,
    "DescribeTransactions fenced": _HIGHER,
    "DescribeProducers of transactions, fenced": _HIGHER,
    "Fetch of nothing": _NO_PARTITION,
    "Fetch of no partition": _NO_PARTITION,
}


@scenario
async def test_answers_are_those_of_kafka(tmp_path: Path) -> None:
    ours: dict[str, Any] = {}
    async with open_rig(tmp_path, {"group.initial.rebalance.delay.ms": "0"}) as rig:
        script = questions()
        asked = next(script)
        try:
            while True:
                for version in asked.versions:
                    told = await rig.ask(asked.key, version, asked.request)
                    for _ in range(100):
                        if not unsettled(plain(told)):
                            break
                        await asyncio.sleep(0.01)
                        told = await rig.ask(asked.key, version, asked.request)
                    ours[f"{asked.label} v{version}"] = plain(told)
                asked = script.send(told)
        except StopIteration:
            pass
    assert ours.keys() == KAFKA.keys(), "record_answers.py has not been run since the questions changed"
    different = {label: (ours[label], KAFKA[label]) for label in ours if ours[label] != KAFKA[label]}
    expected = {label for label in ours if label.rpartition(" v")[0] in ON_PURPOSE}
    assert {label: pair for label, pair in different.items() if label not in expected} == {}
    still = {label.rpartition(" v")[0] for label in different}
    assert ON_PURPOSE.keys() - still == set(), "these do not differ any more"
