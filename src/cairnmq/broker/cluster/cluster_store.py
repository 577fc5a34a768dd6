"""What a broker does in the metadata store as one of a cluster: registers, proposes, is elected. Blocking, for the
metadata thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cairnmq.broker.cluster.registration import Registration
from cairnmq.errors import Unreachable
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.cluster_image import ClusterImage
from cairnmq.metadata.cluster_records import (
    BROKERS,
    CONTROLLER_KEY,
    BrokerEntry,
    Outdated,
    broker_key,
    encode_broker,
    encode_member,
    live_key,
    operations,
)
from cairnmq.metadata.decoding import number
from cairnmq.metadata.store import (
    ABSENT,
    Away,
    Check,
    Conflict,
    Delete,
    InDoubt,
    Made,
    MetadataStore,
    NextEpoch,
    Op,
    Put,
    Session,
)
from cairnmq.replication.lives import Lacking
from cairnmq.replication.records import BrokerRecord, Member, Proposal, PublishedEnd

_ATTEMPTS = 100


class Done(Struct, frozen=True, gc=False):
    """The transaction was made."""

    revision: int


class Refused(Struct, frozen=True, gc=False):
    """It certainly was not made, and will not be. Look at the image again, and decide again."""

    why: str


Outcome: TypeAlias = Done | Refused | InDoubt


class ClusterStore:
    """One broker's part of the cluster's keys. The catalog folds the store's changes, for topics and for brokers and
    journals alike, so there is one watch. `clock` is that of the store's sessions, `proof` that of the brokers' secret.
    """

    def __init__(
        self,
        store: MetadataStore,
        node_id: int,
        session_ms: int,
        *,
        catalog: Catalog,
        clock: Callable[[], int],
        sleep: Callable[[float], None],
        proof: bytes = b"",
    ) -> None:
        assert catalog.cluster is not None, "the catalog of one node"
        self.me: Member | None = None
        self._store = store
        self._catalog = catalog
        self._node_id = node_id
        self._session_ms = session_ms
        self._registration = Registration(store, node_id, session_ms, clock, sleep, proof)
        self._session: Session | None = None

    @property
    def cluster(self) -> ClusterImage:
        """As far as it is folded."""
        assert self._catalog.cluster is not None
        return self._catalog.cluster

    @property
    def confirmed_ms(self) -> int:
        """When the last exchange began in which the store said that the session is alive; 0 before the first."""
        return 0 if self._session is None else self._session.confirmed_ms

    @property
    def pace_ms(self) -> int:
        """How often to renew."""
        return self._session_ms // 3 if self._session is None else self._session.pace_ms

    def load(self) -> ClusterImage:
        """Read everything."""
        self._catalog.load()
        return self.cluster

    def poll(self) -> ClusterImage | None:
        """Fold what others changed; None if nothing of brokers and journals did."""
        before = self.cluster
        self._catalog.refresh()
        return None if self.cluster is before else self.cluster

    def look(self) -> bool:
        """Whether there is something to poll. Cheap."""
        self._store.look()
        return self._catalog.behind.is_set()

    # ---------------------------------------------------------------------------------------------------- sessions

    def register(self, entry: BrokerEntry, stopped_as: int, lacking: Lacking | None = None) -> Member:
        """A new life of this broker; see `Registration`. Unreachable: perhaps later. Any other Fault: never."""
        session, member = self._registration.make(entry, stopped_as, lacking, self.me)
        former, self._session, self.me = self._session, session, member
        if former is not None:
            former.close()  # what it registered belongs to the new one by now
        with suppress(Unreachable):  # it is registered; the next look shows it
            self._catalog.refresh()
        return member

    def renew(self) -> bool | Away:
        """Put off the end of the session. False: it is over, or somebody has found this broker dead: register again,
        as what this life was."""
        if self._session is None or self.me is None:
            return False
        alive = self._session.renew()
        if alive is not True:
            return alive
        try:
            live = self._store.get(live_key(self._node_id))
        except Unreachable as error:
            return Away(str(error))
        return live is not None and number(live.key, live.value) == self.me.broker_epoch

    def close(self) -> None:
        """End the session; others learn at once that this broker is gone."""
        if self._session is not None:
            self._session.close()
            self._session = None
        self.me = None

    def forget(self, broker: int) -> Outcome:
        """The registration of a broker that is not up goes, at the revision that this image shows."""
        image = self.cluster
        if broker not in image.brokers:
            return Refused(f"broker {broker} is not registered")
        ops: list[Op | NextEpoch] = [
            Delete(broker_key(broker), image.broker_revisions[broker]),
            Check(live_key(broker), ABSENT),
        ]
        answer = self._catalog.transact(ops)
        if isinstance(answer, Conflict):
            self._catalog.refresh()
            return Refused(f"{answer.key} has changed")
        return _outcome(answer)

    # ------------------------------------------------------------------------------------------------- proposals

    def propose(self, proposals: Sequence[Proposal], as_controller: bool) -> Outcome:
        """All of them in one transaction, or none. A broker that only tells something meanwhile does not refuse it."""
        for _ in range(_ATTEMPTS):
            image = self.cluster
            ops = operations(proposals, image.brokers, image.broker_revisions)
            if isinstance(ops, Outdated):
                return Refused(f"broker {ops.member.broker} is not in epoch {ops.member.broker_epoch} any more")
            if as_controller:
                if self.me is None or image.controller != self.me:
                    return Refused("this broker is not the controller")
                ops.append(Check(CONTROLLER_KEY, image.controller_revision))
            answer = self._catalog.transact(ops)
            if not isinstance(answer, Conflict):
                return _outcome(answer)
            self._catalog.refresh()
            if not answer.key.startswith(BROKERS):
                return Refused(f"{answer.key} has changed: revision {answer.actual} instead of {answer.expected}")
        return Refused("the brokers change all the time")

    def resolve(self, doubt: InDoubt) -> Outcome:
        """What became of it. A change that was made is in the image when this says so."""
        answer = self._store.resolve(doubt)
        if isinstance(answer, Made):
            self._catalog.refresh()
            return Done(answer.revision)
        return _outcome(answer)

    def elect_controller(self) -> bool:
        """Become the controller if there is none. Its transactions check the revision of this key: one that has lost it
        changes nothing, whatever it believes."""
        image, me, session = self.cluster, self.me, self._session
        if me is None or session is None or image.controller is not None or not image.view.is_live(me):
            return False
        alive = Check(live_key(me.broker), image.live_revisions[me.broker])
        answer = session.register(CONTROLLER_KEY, encode_member(me), also=[alive])
        if isinstance(answer, InDoubt):
            self._store.resolve(answer)
        self._catalog.refresh()
        return self.cluster.controller == me

    def remove_dead(self, broker: int, image: ClusterImage) -> Outcome:
        """A broker that refuses connections is gone: its keys go without waiting for its session, if it is still the
        life that the image shows (R35)."""
        if broker not in image.view.live:
            return Refused(f"broker {broker} has no session")
        ops: list[Op | NextEpoch] = [Delete(live_key(broker), image.live_revisions[broker])]
        if image.controller is not None and image.controller.broker == broker:
            ops.append(Delete(CONTROLLER_KEY, image.controller_revision))
        answer = self._catalog.transact(ops)
        if isinstance(answer, Conflict):
            self._catalog.refresh()
            return Refused(f"{answer.key} has changed")
        return _outcome(answer)

    # ------------------------------------------------------------------------------------ the own registration

    def publish_end(self, journal: int, end: PublishedEnd) -> Outcome:
        """How far a journal without a leader reaches on this broker (R21)."""
        return self._tell(lambda record: replace(record, ends={**record.ends, journal: end}))

    def repaired(self, journal: int) -> Outcome:
        """The journal lacks nothing any more."""

        def mended(record: BrokerRecord) -> BrokerRecord:
            had = {each: end for each, end in record.had.items() if each != journal}
            return replace(record, damaged=record.damaged - {journal}, had=had)

        return self._tell(mended)

    def stopping(self) -> Outcome:
        """This broker is on its way down: the controller gives its journals to others (R12)."""
        return self._tell(lambda record: replace(record, stopping=True))

    def _tell(self, change: Callable[[BrokerRecord], BrokerRecord]) -> Outcome:
        for _ in range(_ATTEMPTS):
            image, me = self.cluster, self.me
            entry = None if me is None else image.brokers.get(me.broker)
            if me is None or entry is None or entry.record.broker_epoch != me.broker_epoch:
                return Refused("this life of the broker is not registered")
            record = change(entry.record)
            if record == entry.record:
                return Done(image.broker_revisions[me.broker])
            value = encode_broker(replace(entry, record=record))
            answer = self._catalog.transact([Put(broker_key(me.broker), value, image.broker_revisions[me.broker])])
            if not isinstance(answer, Conflict):
                return _outcome(answer)
            self._catalog.refresh()
        return Refused("the registration changes all the time")


def _outcome(answer: int | Away | InDoubt) -> Outcome:
    if isinstance(answer, int):
        return Done(answer)
    return Refused(answer.reason) if isinstance(answer, Away) else answer
