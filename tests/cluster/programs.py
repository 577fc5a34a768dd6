"""Clients that are programs (Java, aiokafka, kafka-python), as producers and as members of groups of a cluster."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence

from cluster.writers import TICK_SECONDS, Manner, Notes
from crash.ledger import Place
from history.events import History, Seen
from interop.clients.contract import Refused, Sent
from interop.clients.members import Host, Member, Wish, command_of
from interop.clients.process import ClientProcess, Event, line_of

DELIVERY_MS = 40_000
FAILURES = (Refused, AssertionError, OSError, ValueError)


class ProgramWriter:
    """Each call is a producer of its own, with one record for each partition. The library sends again what was not
    answered. After a call that failed, its late requests may still come: what follows is of another writer."""

    def __init__(self, client: str, bootstrap: str, manner: Manner, places: Sequence[Place], history: History) -> None:
        self.manner = manner._replace(retried=True)
        self.bootstrap = bootstrap
        self.places = places
        self.history = history
        self.acked = 0
        self.failed = 0
        self.calls = 0
        self.notes = Notes(self.manner, places, history)
        self.process = ClientProcess(command_of(client))
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, name=manner.name, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.stopping.wait(TICK_SECONDS):
            self.turn()

    def turn(self) -> None:
        sends = [self.notes.send(place) for place in self.places]
        records = [Sent(send.value.encode(), partition=send.place.partition) for send in sends]
        try:
            offsets = self.process.ask(
                "produce", bootstrap=self.bootstrap, topic=self.places[0].topic, records=list(map(line_of, records)),
                codec="none", acks=self.manner.acks, idempotent=self.manner.idempotent, size_max=1_000_000,
                millis=DELIVERY_MS,
            )  # fmt: skip
        except FAILURES as problem:
            self.calls += 1
            self.notes.writer = f"{self.manner.name}.{self.calls}"
            for send in sends:
                self.notes.told(send, None, problem)
        else:
            for send, offset in zip(sends, offsets, strict=True):
                self.notes.told(send, offset)
        self.acked, self.failed = self.notes.acked, self.notes.failed

    def stop(self) -> None:
        self.stopping.set()

    def finish(self) -> list[str]:
        self.stop()
        self.thread.join()
        self.process.kill()
        return []

    def abandon(self) -> None:
        self.stop()
        self.process.kill()
        self.thread.join()


class ProgramMember(Member):
    """What it shows goes into a history. It commits by itself what it has shown, so each end that it comes to may be
    committed."""

    def __init__(
        self, host: Host, bootstrap: str, group: str, topics: Sequence[str], history: History, *, protocol: str
    ) -> None:
        self.history = history
        self.turns: dict[Place, int] = {}
        self.turn = 0
        super().__init__(host, Wish(bootstrap, group, tuple(topics), protocol=protocol))

    def hear(self, event: Event) -> None:
        asked = self.history.now()
        super().hear(event)
        if event["event"] == "assigned":
            for topic, partition in event["partitions"]:
                self.turn += 1
                self.turns[Place(topic, partition)] = self.turn
        elif event["event"] == "records":
            found: dict[Place, list[Seen]] = defaultdict(list)
            for topic, partition, offset, value in event["records"]:
                found[Place(topic, partition)].append(Seen(offset, value))
            for place, seen in found.items():
                reader = f"{self.name}/{self.turns.get(place, 0)}"
                self.history.read(asked, place, seen, committed=True, reader=reader, group=self.wish.group)
                self.history.commit(self.wish.group, place, seen[-1].offset + 1)
