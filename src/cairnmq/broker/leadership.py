"""Who leads which journal, as this broker knows it: one holder on the loop thread.

Shells of replicas write it; handlers read it. What the metadata say (`views`) and what this broker may do (`led`) are
apart: it leads from the turn in which its write path stands to the one in which it steps down. One node is a cluster of
one: it leads all its journals for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from cairnmq.errors import ErrorCode, Refusal

NOBODY = -1


class KnownBroker(Struct, frozen=True):
    """A live broker, with the address that clients of other brokers are told."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class JournalView(Struct, frozen=True, gc=False):
    """A journal as the metadata have it. `isr`: as committed. `offline`: replicas on brokers that are not live.
    `is_weak`: records may be acknowledged to acks=all before every member of the ISR has synced them."""

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    is_weak: bool = False


class NotLeader(Refusal, frozen=True, gc=False):
    """This broker does not lead the journal; who does, as far as it knows, and in which epoch (KIP-951)."""

    leader: int = NOBODY
    epoch: int = -1


class Elections(Protocol):
    """Elections that a person asks for. None: the journal has another leader now."""

    async def preferred(self, journal: int) -> Refusal | None: ...

    async def unclean(self, journal: int) -> Refusal | None: ...


class NoElections:
    """Of one node: it is the only candidate, and leads."""

    def __init__(self, node: int) -> None:
        self._refusal = Refusal(
            ErrorCode.ELECTION_NOT_NEEDED, f"broker {node} is already the leader and the only replica"
        )

    async def preferred(self, journal: int) -> Refusal | None:
        return self._refusal

    async def unclean(self, journal: int) -> Refusal | None:
        return self._refusal


UNKNOWN = JournalView(NOBODY, -1, (), ())


def _always() -> bool:
    return True


class Leadership:
    """`led`: journals that this broker leads, with the epoch; the kernel of Fetch reads it.

    `version` grows when brokers, leaders, epochs or replicas change, `isr_version` when an ISR does, and `terms` when
    this broker begins or ceases to lead. `on_lost`: each is called when it ceases; whoever is parked looks again.
    `is_leaving`: this broker is on its way down, and others are to lead what it leads. `departed`: brokers that live no
    more, of which clients are still told.
    """

    __slots__ = (
        "_leases",
        "_not_ready",
        "brokers",
        "controller",
        "departed",
        "is_cluster",
        "is_leaving",
        "isr_version",
        "led",
        "node",
        "on_lost",
        "terms",
        "version",
        "views",
        "installs",
        "weak_wanted",
    )

    def __init__(self, node: int, *, is_cluster: bool = True) -> None:
        self.node = node
        self.is_cluster = is_cluster
        self.is_leaving = False
        self.brokers: tuple[KnownBroker, ...] = ()
        self.departed: tuple[KnownBroker, ...] = ()
        self.controller = NOBODY
        self.version = self.isr_version = self.terms = 0
        self.views: dict[int, JournalView] = {}
        self.led: dict[int, int] = {}
        self.on_lost: set[Callable[[], None]] = set()
        self.weak_wanted: set[int] = set()  # journals that are to be marked as weak before they acknowledge more
        self.installs: dict[int, float] = {}  # journals that are taken over from their leaders: how far
        self._not_ready: set[int] = set()
        self._leases: dict[int, Callable[[], bool]] = {}

    @classmethod
    def alone(cls, node: KnownBroker, journals: Iterable[int], epochs: Mapping[int, int]) -> Leadership:
        """Of one node."""
        only = cls(node.node_id, is_cluster=False)
        only.know_brokers([node], node.node_id)
        for journal in journals:
            only.know(journal, JournalView(node.node_id, epochs[journal], (node.node_id,), (node.node_id,)))
            only.lead(journal, epochs[journal], is_ready=True)
        return only

    # --------------------------------------------------------------------------------------------- what handlers ask

    def view(self, journal: int) -> JournalView:
        """The journal as the metadata have it; without leader and replicas if they are not known here (yet)."""
        return self.views.get(journal, UNKNOWN)

    def refusal(self, journal: int) -> NotLeader | None:
        """None: this broker leads the journal, and may stage."""
        if journal in self.led:
            return None
        view = self.view(journal)
        if view.leader == NOBODY:
            why = f"journal {journal} has no leader at the moment"
        elif view.leader == self.node:
            why = f"broker {self.node} was elected for journal {journal} and does not lead it yet"
        else:
            why = f"broker {view.leader} leads journal {journal}"
        return NotLeader(ErrorCode.NOT_LEADER_OR_FOLLOWER, why, view.leader, view.epoch)

    def is_ready(self, journal: int) -> bool:
        """Led here, and all of earlier epochs is replicated: so the ends of its queues may be told (R24)."""
        return journal in self.led and journal not in self._not_ready

    def in_sync(self, journal: int) -> int:
        """How many replicas `min.insync.replicas` is compared with."""
        return len(self.view(journal).isr)

    def may_answer_alone(self, journal: int) -> bool:
        """Whether coordinators may answer from memory: no other broker can lead the journal now (R18)."""
        lease = self._leases.get(journal)
        return lease is not None and lease()

    def may_acknowledge_alone(self, journal: int) -> bool:
        """The same for acks=1 and acks=0. A broker that hands over may not: its followers turn to the next leader
        before it hears of that, and what they have not copied until then is lost."""
        return self.may_answer_alone(journal) and not (self.is_leaving and self.in_sync(journal) > 1)

    def admits_unsynced(self, journal: int) -> bool:
        """Whether acks=all may be answered before a sync. An election after a power loss believes journals without the
        mark to lack nothing on any member, so the mark comes first (R21)."""
        view = self.view(journal)
        if not self.is_cluster or view.is_weak or len(view.replicas) == 1:
            return True
        self.weak_wanted.add(journal)
        return False

    @property
    def told_controller(self) -> int:
        """Whom clients send changes of topics to: the controller, or another live broker, which serves them as well.
        Told of none, librdkafka waits until it asks for metadata again, which may be minutes."""
        live = [each.node_id for each in self.brokers]
        return next((node for node in (self.controller, self.node, *live) if node in live), NOBODY)

    def broker(self, node: int) -> KnownBroker | None:
        """A live broker by its id."""
        return next((each for each in self.brokers if each.node_id == node), None)

    @property
    def own_rack(self) -> str | None:
        """As the others know it."""
        own = self.broker(self.node)
        return None if own is None else own.rack

    # ---------------------------------------------------------------------------------------------- what shells tell

    def know_brokers(self, brokers: Iterable[KnownBroker], controller: int) -> None:
        """Who is live, and who decides about leaders (-1: nobody)."""
        known = tuple(sorted(brokers, key=lambda each: each.node_id))
        if (known, controller) != (self.brokers, self.controller):
            self.brokers, self.controller = known, controller
            self.version += 1

    def know_departed(self, brokers: tuple[KnownBroker, ...]) -> None:
        """Who is not live any more, for as long as clients are told of them."""
        if brokers != self.departed:
            self.departed = brokers
            self.version += 1

    def know(self, journal: int, view: JournalView) -> None:
        """The metadata say so. Before `lead` of the same epoch."""
        before, self.views[journal] = self.views.get(journal), view
        if before is None or _without_isr(before) != _without_isr(view):
            self.version += 1
        elif before.isr != view.isr:
            self.isr_version += 1

    def lead(
        self, journal: int, epoch: int, may_answer_alone: Callable[[], bool] = _always, *, is_ready: bool = False
    ) -> None:
        """The write path of this epoch stands."""
        self.led[journal] = epoch
        self._leases[journal] = may_answer_alone
        self._not_ready.discard(journal)
        if not is_ready:
            self._not_ready.add(journal)
        self.terms += 1

    def ready(self, journal: int) -> None:
        """The replicated end has passed the start of the epoch."""
        self._not_ready.discard(journal)

    def lost(self, journal: int) -> None:
        """This broker leads the journal no more. Call it before the write path steps down: who waits there asks here
        why it failed."""
        if self.led.pop(journal, None) is None:
            return
        del self._leases[journal]
        self._not_ready.discard(journal)
        self.terms += 1
        for wake in tuple(self.on_lost):
            wake()


def _without_isr(view: JournalView) -> tuple[object, ...]:
    return view.leader, view.epoch, view.replicas, view.offline
