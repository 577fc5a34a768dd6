"""What must be true of replicas on real storage, read from their journals."""

from __future__ import annotations

from msgspec import Struct

from cairnmq.replication.records import Kept
from cairnmq.storage.files.format import BATCH, Entry
from cairnmq.storage.live.ack_policy import DURABLE, WRITTEN, AckLevel
from cairnmq.storage.live.follow_path import FollowPath
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.write_path import WritePath
from cairnmq.testing.oracle import demand
from cairnmq.testing.replicas.stored_replica import Life, tip_of


class Told(Struct):
    """Somebody was told that everything before `end` is at this level. `keepers`: brokers that have kept power since,
    or had it synced."""

    end: int
    level: AckLevel
    epoch: int
    keepers: set[int]


class StoredJudge:
    """One for a world."""

    def __init__(self) -> None:
        self.truth = b""  # what is replicated
        self.durable = 0
        self.told: list[Told] = []
        self.durable_entries: set[tuple[int, int]] = set()  # (epoch, end) of those that must be durable to be seen
        self._starts: dict[int, int] = {}  # by queue: where somebody was told that it begins
        self._noted: dict[int, int] = {}  # by broker: up to where its replicated part was compared

    def started(self, broker: int, life: Life) -> None:
        """What it remembers to be replicated may be gone by now."""
        self._noted[broker] = life.path.journal.replicated_end

    def was_cut(self, broker: int, to: int) -> None:
        """It knows less from now on."""
        self._noted[broker] = min(self._noted[broker], to)

    def began_at(self, queue_id: int, offset: int) -> None:
        """Somebody was told that nothing before this offset is there any more, whatever happens."""
        self._starts[queue_id] = max(offset, self._starts.get(queue_id, 0))

    def lost_power(self, broker: int, synced: int) -> None:
        """The machine has what was synced, and any part of the rest."""
        for told in self.told:
            if synced < told.end:
                told.keepers.discard(broker)

    def recovered(self, end: int) -> bool:
        """All members had restarted: what the one that leads now does not have is gone, and may be. Returns whether
        anything is."""
        demand(end >= self.durable, "the journal was durable up to", self.durable, "and goes on at", end)
        for told in [told for told in self.told if told.end > end]:
            demand(told.level is not DURABLE, "lost what was durable up to", told.end)
            demand(told.level is WRITTEN or not told.keepers, "lost up to", told.end, "which", told.keepers, "kept")
            self.told.remove(told)
        is_cut, self.truth = end < len(self.truth), self.truth[:end]
        return is_cut

    def check_ends(self, broker: int, life: Life, kept: Kept) -> None:
        """Positions are in order, and what is replicated is the same everywhere."""
        journal, noted = life.path.journal, self._noted[broker]
        demand(
            life.split <= journal.durable_end <= journal.replicated_end <= journal.end <= journal.staged_end
            and journal.synced <= journal.end,
            "broker", broker, "has its positions out of order",
        )  # fmt: skip
        if isinstance(life.path, FollowPath):
            demand(journal.staged_end == life.history.end, "broker", broker, "has entries of its own")
        demand(noted <= journal.replicated_end, "broker", broker, "lost what it knew to be replicated")
        if life.epoch < kept.record.recovered:
            self._noted[broker] = journal.replicated_end  # it follows a leader whose bytes are gone
        elif journal.replicated_end > noted:
            part = life.bytes_from(noted, journal.replicated_end - noted)
            known = self.truth[noted : journal.replicated_end]
            demand(part[: len(known)] == known, "broker", broker, "differs in what is replicated, from", noted)
            self.truth += part[len(known) :]
            self._noted[broker] = journal.replicated_end
        if life.leader is not None and life.leader.kept == kept:
            self.durable = max(self.durable, journal.durable_end)

    def check_states(self, life: Life) -> None:
        """Live state is what the journal says up to where it may have it, and no more is shown."""
        path, journal = life.path, life.path.journal
        if journal.staged_end != journal.end:
            return
        entries = life.entries()
        demand(not entries or entries[-1].end == journal.end, "the journal of", life.me, "does not read back")
        counts_to = journal.replicated_end
        if isinstance(path, FollowPath):
            unknown = [e.position for e in entries if e.queue_id >= life.machine.next_queue]
            counts_to = min([counts_to, *unknown])
            demand(path.folded_end == counts_to, life.me, "has folded up to", path.folded_end, "instead of", counts_to)
        end = journal.end if isinstance(path, WritePath) else counts_to
        tip = tip_of(entries, end, counts_to, set(life.queues))
        for number, queue in life.queues.items():
            expected = tip.states[number]
            demand(queue.state == expected, life.me, "queue", number, _named(queue.state), "not", _named(expected))
            self._check_visible(life, queue, entries, counts_to)
        counted = tip_of(entries, counts_to, counts_to, set(life.queues))
        demand(life.keyed == counted.keyed, life.me, "has keyed facts", life.keyed, "instead of", counted.keyed)
        unsplit = counted.batches - sum(e.kind == BATCH for e in entries if e.end <= life.split)
        demand(path.unsplit_entries == unsplit, life.me, "counts", path.unsplit_entries, "unsplit, not", unsplit)

    def _check_visible(self, life: Life, queue: Queue, entries: list[Entry], counts_to: int) -> None:
        """R2. A follower does not know which entries must be durable, so it may hide more."""
        own = [e for e in entries if e.kind == BATCH and e.queue_id == queue.queue_id]
        counted = [e for e in own if e.end <= counts_to]
        durable_end = life.path.journal.durable_end
        hidden = [e for e in counted if e.end > durable_end]
        most = min(
            (e.base_offset for e in hidden if (e.epoch, e.end) in self.durable_entries),
            default=counted[-1].last_offset + 1 if counted else 0,
        )
        least = hidden[0].base_offset if hidden else most
        seen = queue.high_watermark
        demand(seen <= most, life.me, "queue", queue.queue_id, "shows up to", seen, "instead of", most)
        demand(seen >= min(least, most), life.me, "queue", queue.queue_id, "hides from", seen, "not", least)
        tail = queue.tail
        ends = [e.position for e in counted if e.end > life.split]
        found = [position for position in tail.positions] if tail is not None else []
        demand(len(found) == len(ends), life.me, "queue", queue.queue_id, "has", len(found), "in its tail, not", ends)

    def check_rest(self, lives: list[Life], epoch: int) -> None:
        """Everything has settled."""
        contents = {life.bytes_from(0, life.path.journal.end) for life in lives}
        demand(len(contents) == 1, "replicas differ at rest")
        (content,) = contents
        demand(content[: len(self.truth)] == self.truth, "what was replicated is not what there is")
        for life in lives:
            self.check_states(life)
            for number, queue in life.queues.items():
                start, promised = queue.log_start, self._starts.get(number, 0)
                demand(start >= promised, life.me, "queue", number, "begins at", start, "again, not at", promised)
            entries = life.entries()
        for told in self.told:
            if told.level is not WRITTEN or told.epoch == epoch:  # nobody else has led since
                demand(told.end <= len(self.truth), "lost what was", told.level.name, "up to", told.end)
        sent = [(e.producer_id, e.producer_epoch, e.base_sequence) for e in entries if e.base_sequence >= 0]
        demand(len(sent) == len(set(sent)), "an idempotent producer's batch is there twice")


def _named(state: object) -> dict[str, object]:
    names = ("log_start", "end", "epochs", "producers", "open_transactions", "aborted")
    return {name: getattr(state, name) for name in names}
