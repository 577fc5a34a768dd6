"""A broker's registration: a new life under a new epoch, with the session that says that it is alive. Blocking."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from cairnmq.broker.cluster.session_wait import Obstacle, SessionWait
from cairnmq.errors import Fault, TakenOver, Unreachable
from cairnmq.metadata.cluster_records import (
    CONTROLLER_KEY,
    JOURNALS,
    LEVEL_KEY,
    LIVE,
    SECRET_KEY,
    BrokerEntry,
    broker_key,
    decode_broker,
    decode_journal,
    decode_member,
    encode_broker,
    live_key,
    number_of,
)
from cairnmq.metadata.decoding import decoded, number
from cairnmq.metadata.store import (
    ABSENT,
    Away,
    Conflict,
    Delete,
    Entry,
    InDoubt,
    MetadataStore,
    NextEpoch,
    Op,
    Put,
    Session,
)
from cairnmq.replication.lives import Lacking, first_life, life_elsewhere, next_life
from cairnmq.replication.records import Member
from cairnmq.types import Epoch, host_port

_ATTEMPTS = 1000  # waits for the end of another session among them


class Registration:
    """Of one broker, again and again in the life of its process. `clock` is that of the store's sessions. `proof`: of
    the secret that it shares with the others; empty without one."""

    def __init__(
        self,
        store: MetadataStore,
        node_id: int,
        session_ms: int,
        clock: Callable[[], int],
        sleep: Callable[[float], None],
        proof: bytes = b"",
    ) -> None:
        self._store = store
        self._node_id = node_id
        self._session_ms = session_ms
        self._clock = clock
        self._sleep = sleep
        self._proof = proof
        self._doubt: tuple[InDoubt, Session, Member] | None = None

    def make(
        self, entry: BrokerEntry, stopped_as: int, lacking: Lacking | None, former: Member | None = None
    ) -> tuple[Session, Member]:
        """A new life (R10). `stopped_as`: the life whose every byte this one has, or 0. `entry` needs no record. A
        directory that is known takes over what the process before has left, at once; another directory waits for the
        end of that session. `lacking`: what a start has found; None if the process goes on. `former`: the life that
        this process had. Unreachable: perhaps later. Any other Fault: never; TakenOver if another process has
        registered after `former`."""
        begun = self._begun()
        if begun is not None:
            return begun
        session = self._new_session()
        try:
            return self._attempt(entry, stopped_as, lacking, former, session)
        except BaseException:
            if self._doubt is None:
                session.close()
            raise

    def _attempt(
        self,
        entry: BrokerEntry,
        stopped_as: int,
        lacking: Lacking | None,
        former: Member | None,
        session: Session,
    ) -> tuple[Session, Member]:
        key = live_key(self._node_id)
        waits: dict[str, SessionWait] = {}
        for _ in range(_ATTEMPTS):
            self._check_level(entry)
            kept, live = self._store.get(broker_key(self._node_id)), self._store.get(key)
            known = None if kept is None else decoded(kept.key, kept.value, decode_broker)
            if former is not None and known is not None and known.record.broker_epoch != former.broker_epoch:
                raise TakenOver(
                    f"another process took over broker id {self._node_id} at {host_port(known.host, known.port)}, in "
                    f"epoch {known.record.broker_epoch}: is its data directory a copy? This broker stops"
                )
            secret = self._store.get(SECRET_KEY)
            obstacle = self._same_id(entry, known, live) or self._other_secret(secret)
            if obstacle is not None:
                if obstacle.key not in waits:
                    waits[obstacle.key] = self._wait(obstacle, session)
                if waits[obstacle.key].is_over():
                    raise Fault(obstacle.refusal)
                continue
            made = self._life(entry, known, stopped_as, lacking)
            member = Member(self._node_id, made.record.broker_epoch)
            answer = session.register(
                key,
                str(member.broker_epoch).encode(),
                expect=_revision(live),
                also=[*self._operations(made, kept), Put(SECRET_KEY, self._proof, _revision(secret))],
            )
            if isinstance(answer, InDoubt):
                self._doubt = answer, session, member
                begun = self._begun()
                if begun is not None:
                    return begun
            elif isinstance(answer, Away):
                raise Unreachable(answer.reason)
            elif not isinstance(answer, Conflict):
                return session, member
            elif not session.live:
                raise Unreachable(f"the session of broker {self._node_id} ended before it was registered")
        raise Unreachable(f"broker {self._node_id} could not register: the metadata change all the time")

    def _begun(self) -> tuple[Session, Member] | None:
        """By a registration of which nobody knew whether it was made: one that was must be used, or a clean stop would
        count for nothing."""
        if self._doubt is None:
            return None
        doubt, session, member = self._doubt
        outcome = self._store.resolve(doubt)
        if isinstance(outcome, InDoubt):
            raise Unreachable(outcome.reason)
        self._doubt = None
        return None if isinstance(outcome, Away) else (session, member)

    def _new_session(self) -> Session:
        session = self._store.session(self._session_ms)
        if isinstance(session, Away):
            raise Unreachable(session.reason)
        return session

    def _check_level(self, entry: BrokerEntry) -> None:
        """Nothing is written that is newer than what the cluster has agreed on."""
        kept = self._store.get(LEVEL_KEY)
        level = entry.level[1] if kept is None else number(kept.key, kept.value)
        low, high = entry.level
        if not low <= level <= high:
            raise Fault(f"the cluster is at level {level}; this version knows levels {low} to {high}")

    def _same_id(self, entry: BrokerEntry, known: BrokerEntry | None, live: Entry | None) -> Obstacle | None:
        """The id, while another directory has it."""
        if live is None or known is None or known.directory_id == entry.directory_id:
            return None
        where = host_port(known.host, known.port)
        return Obstacle(
            live.key,
            f"broker id {self._node_id} is held by a session of {where}, with another data directory",
            f"broker id {self._node_id} is in use by a live broker at {where} with another data directory; "
            f"give this one another --node-id",
        )

    def _other_secret(self, kept: Entry | None) -> Obstacle | None:
        """A live broker with another secret: no link to it would ever open. The first of them all may bring a new
        one."""
        if kept is None or kept.value == self._proof:
            return None
        others = [one.key for one in self._store.list(LIVE) if one.key != live_key(self._node_id)]
        if not others:
            return None
        other = f"broker {number_of(others[0])}"
        if not self._proof:
            told = f"this broker has no cairn.cluster.secret, and {other} has one"
        elif not kept.value:
            told = f"this broker has a cairn.cluster.secret, and {other} has none"
        else:
            told = f"this broker has another cairn.cluster.secret than {other}"
        return Obstacle(
            others[0],
            told,
            f"{told}. It must be the same on all brokers of a cluster; to change it, stop all of them first",
        )

    def _wait(self, obstacle: Obstacle, session: Session) -> SessionWait:
        patience_ms = 2 * self._session_ms
        return SessionWait(self._store, obstacle, session, patience_ms, self._clock, self._sleep)

    def _life(
        self, entry: BrokerEntry, known: BrokerEntry | None, stopped_as: int, lacking: Lacking | None
    ) -> BrokerEntry:
        """The registration of the next life."""
        epoch = self._store.epoch + 1
        if known is None:
            record = first_life(self._node_id, epoch, lacking or Lacking())
        elif known.directory_id == entry.directory_id:
            record = next_life(known.record, epoch, stopped_as, lacking)
        else:
            journals = [decoded(each.key, each.value, decode_journal) for each in self._store.list(JOURNALS)]
            left, directory = known.directory_id, entry.directory_id
            record = life_elsewhere(known.record, epoch, lacking or Lacking(), journals, left=left, directory=directory)
        return replace(entry, record=record)

    def _operations(self, made: BrokerEntry, kept: Entry | None) -> list[Op | NextEpoch]:
        """All that goes with the `live` key. A controller that restarts is it no more."""
        controller, level = self._store.get(CONTROLLER_KEY), self._store.get(LEVEL_KEY)
        ops: list[Op | NextEpoch] = [
            NextEpoch(Epoch(made.record.broker_epoch)),
            Put(broker_key(self._node_id), encode_broker(made), _revision(kept)),
        ]
        if level is None:
            ops.append(Put(LEVEL_KEY, str(made.level[1]).encode(), ABSENT))
        if controller is not None and decoded(controller.key, controller.value, decode_member).broker == self._node_id:
            ops.append(Delete(CONTROLLER_KEY, controller.revision))
        return ops


def _revision(kept: Entry | None) -> int:
    """That a change expects."""
    return ABSENT if kept is None else kept.revision
