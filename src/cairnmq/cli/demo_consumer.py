"""A consumer of the demo: a real member of a group, on a thread of its own, that rests now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from cairnmq.cli.offset_spec import START, OffsetSpec
from cairnmq.cli.reader import Reader
from cairnmq.cli.subscription import Joined, Topics
from cairnmq.cli.topic_choice import Choice
from cairnmq.client.blocking import Client
from cairnmq.client.errors import ClientError

RETRY_SECONDS = 1.0
STEP_SECONDS = 0.25


class DemoConsumer:
    """Reads one topic for a group. While `rests` is true of the time it only stays a member, and its lag grows."""

    def __init__(
        self, bootstrap: str, client_id: str, group: str, topic: str, rests: Callable[[float], bool] = lambda now: False
    ) -> None:
        self.read = 0  # messages
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._group = group
        self._topic = topic
        self._rests = rests
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"demo-{client_id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """It commits and leaves its group by itself; `wait` waits for that."""
        self._stopping.set()

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._consume()
            except ClientError:
                self._stopping.wait(RETRY_SECONDS)

    def _consume(self) -> None:
        with Client.connect(self._bootstrap, client_id=self._client_id) as client:
            reader = Reader(client, OffsetSpec(START))
            member = Joined(client, Topics(client, [Choice(self._topic, None)]), reader, self._group)
            try:
                while not self._stopping.is_set():
                    if self._rests(time.monotonic()):
                        self._stopping.wait(STEP_SECONDS)
                    else:
                        self.read += sum(1 for _ in reader.read())
                    member.step()
            finally:
                member.close()
