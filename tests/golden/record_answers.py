"""Records what Apache Kafka answers to questions.py into answers.json: run by hand, against a fresh broker on loopback.

    PYTHONPATH=tests python -m golden.record_answers 127.0.0.1:9092

The broker has node.id=1, one listener, `group.initial.rebalance.delay.ms=0`, `group.consumer.assignment.interval.ms=0`
(ours assigns at once), and replication factor 1 everywhere.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path

from cairnmq.wire.apis import response_class
from cairnmq.wire.codec import decode, encode
from cairnmq.wire.framing import read_response_header, request_frame
from cairnmq.wire.messages import FindCoordinatorRequest, JoinGroupRequest, Message
from golden.questions import plain, questions, unsettled

TARGET = Path(__file__).with_name("answers.json")


class Line:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._stream = self._socket.makefile("rb")
        self._number = 0

    def ask(self, key: int, version: int, request: Message) -> Message:
        self._number += 1
        self._socket.sendall(b"".join(request_frame(key, version, self._number, "test", encode(request, version))))
        frame = memoryview(self._stream.read(int.from_bytes(self._stream.read(4), "big")))
        _, position = read_response_header(frame, key, version)
        message, _ = decode(response_class(key), version, frame, position)
        return message

    def patiently(self, key: int, version: int, request: Message) -> Message:
        """The answer when everything has settled."""
        told = self.ask(key, version, request)
        for _ in range(100):
            if not unsettled(plain(told)):
                break
            time.sleep(0.1)
            told = self.ask(key, version, request)
        return told


def wait_for_groups(line: Line) -> None:
    for _ in range(100):
        line.ask(10, 4, FindCoordinatorRequest(coordinator_keys=["warm"]))
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range")
        request = JoinGroupRequest(
            group_id="warm", session_timeout_ms=10_000, protocol_type="consumer", protocols=[protocol]
        )
        if not unsettled(plain(line.ask(11, 9, request))):
            return
        time.sleep(0.3)
    raise SystemExit("the group coordinator does not come up")


def main(address: str) -> None:
    line = Line(address)
    answers: dict[str, object] = {}
    script = questions()
    asked = next(script)
    try:
        while True:
            if asked.key == 11:
                wait_for_groups(line)
            for version in asked.versions:
                told = line.patiently(asked.key, version, asked.request)
                answers[f"{asked.label} v{version}"] = plain(told)
            time.sleep(0.02)  # Kafka's brokers hear of changes a little later
            asked = script.send(told)
    except StopIteration:
        rows = [f"{json.dumps(label)}: {json.dumps(answer)}" for label, answer in answers.items()]
        TARGET.write_text("{\n" + ",\n".join(rows) + "\n}\n")
        print(f"{len(answers)} answers")


if __name__ == "__main__":
    main(sys.argv[1])
