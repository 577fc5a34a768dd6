"""A cluster whose machines have too little room: slow splitters, small backlogs, disks that fill up, and journals that
are kept for a while only. Nobody may be slowed down for ever, and no replica left behind for nothing.

A third of the worlds are calm: room is all that is ever short. There a replica that is only slow must stay in the ISR.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from cairnmq.replication.messages import ENDLESS
from cairnmq.replication.records import JournalRecord
from cairnmq.testing.replicas.broker_process import BrokerProcess
from cairnmq.testing.replicas.judge import Broken
from cairnmq.testing.replicas.machine import Machine
from cairnmq.testing.replicas.narrow_process import AT_ONCE_BYTES, FREE_BYTES_MIN, Narrow, NarrowProcess
from cairnmq.testing.replicas.world import ReplicaWorld, Shape

CALM_EVERY = 3
WARM_UP_MS = 4_000
STALE_MS = 1_500  # what a leader knows of a follower may be as old as this, in a calm world
STUCK_MS = (2_000, 8_000)
SLOW_MS = (5_000, 20_000)


class NarrowWorld(ReplicaWorld):
    """As its base, with room that runs out."""

    def __init__(self, seed: int) -> None:
        self.is_calm = seed % CALM_EVERY == 0
        super().__init__(seed)
        random = self.random
        self.stuck = not self.is_calm or random.random() < 0.5
        backlog_max, retention = random.choice([150, 300, 1_000]), random.choice([0, 100, 400, 2_000])
        if self.is_calm:
            self.shared.network.rarely_ms = 0
        self.narrow = {broker: Narrow(backlog_max, retention) for broker in self.machines}

    def _draw(self) -> Shape:
        shape = super()._draw()
        if not self.is_calm:
            return replace(shape, damage=False)
        quiet = dict.fromkeys(
            ("kills", "power", "pauses", "cuts", "store_away", "clean_stops", "all_lose_power", "damage", "spite"),
            False,
        )
        return replace(shape, long_absence=False, **quiet)

    def _process(self, machine: Machine) -> BrokerProcess:
        return NarrowProcess(machine, self.shared, self.narrow[machine.broker], is_calm=self.is_calm)

    def _whole(self, record: JournalRecord) -> list[int]:
        """Those that were away for too long stay out, unless an election has brought them back."""
        in_sync = {member.broker for member in record.isr}
        return [
            broker for broker in record.replicas if broker in in_sync or record.journal not in self.narrow[broker].out
        ]

    def _kinds(self) -> dict[Callable[[], None], bool]:
        return super()._kinds() | {self._slow: True, self._stick: self.stuck, self._fill: self.stuck}

    def _slow(self) -> None:
        """A splitter that is slower than the producers."""
        self._narrow_for(SLOW_MS, split_bytes=2)

    def _stick(self) -> None:
        """A splitter that does nothing."""
        self._narrow_for(STUCK_MS, split_bytes=0)

    def _fill(self) -> None:
        """Somebody else fills the disk, nearly or to the last byte."""
        self._narrow_for(STUCK_MS, free_bytes=self.random.choice([0, FREE_BYTES_MIN - 1]))

    def _narrow_for(self, times: tuple[int, int], **left: int) -> None:
        narrow = self.narrow[self._any()]
        for name, value in left.items():
            setattr(narrow, name, value)
        self.schedule.after(self.random.randint(*times), lambda: self._widen(narrow))

    @staticmethod
    def _widen(narrow: Narrow) -> None:
        narrow.split_bytes, narrow.free_bytes = AT_ONCE_BYTES, ENDLESS

    def _isr_changed(self, before: JournalRecord, after: JournalRecord) -> None:
        super()._isr_changed(before, after)
        if len(after.isr) < len(before.isr):
            self.counts["shrinks"] += 1
        for member in after.isr:
            self.narrow[member.broker].given_up.discard(after.journal)
        if not self.is_calm or self.schedule.now_ms < WARM_UP_MS:
            return
        if len(after.isr) < len(before.isr) and not self.stuck:
            raise Broken(f"a replica of journal {after.journal} left the ISR, and is only slow: {before} {after}")
        if after.leader is None:
            raise Broken(f"the leader of journal {after.journal} resigned, and others are only slow: {before}")
        for member in set(after.isr) - set(before.isr):
            process = self.shared.processes[member.broker]
            assert isinstance(process, NarrowProcess)
            if process.short_for_ms(process.hosted[after.journal]) > STALE_MS:
                raise Broken(f"{member} came into the ISR of journal {after.journal}, and makes producers wait")

    def heal(self) -> None:
        super().heal()
        for narrow in self.narrow.values():
            self._widen(narrow)
