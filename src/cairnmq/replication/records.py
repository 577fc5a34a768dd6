"""What the metadata store holds about brokers and journals. Values; only the store's transactions change them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct
from msgspec.structs import replace


class Member(Struct, frozen=True, order=True, gc=False):
    """A broker in one of its lives. An ISR holds these, so a restart leaves the ISR by construction (R9)."""

    broker: int
    broker_epoch: int


class JournalRecord(Struct, frozen=True):
    """A journal's one key in the store. Elections change leader and epoch, the leader changes the ISR (R8)."""

    journal: int
    replicas: tuple[int, ...]  # the first is the preferred leader
    leader: Member | None  # a life, as in the ISR: a broker that restarts does not lead on by itself
    epoch: int
    isr: tuple[Member, ...]
    resigned: int | None = None  # the last leader that gave up, until the ISR has grown again
    weak: bool = False  # may hold records that were acknowledged before every member had synced them
    recovered: int = 0  # the last epoch whose leader was chosen among members that had all restarted
    unclean: int = 0  # the last epoch whose leader was not in the ISR: acknowledged records may be lost
    unclean_ms: int = 0  # the date of that election

    def member(self, broker: int) -> Member | None:
        """The ISR's entry of a broker."""
        return next((one for one in self.isr if one.broker == broker), None)

    def without(self, leaving: Collection[Member]) -> JournalRecord:
        """The record after these left the ISR."""
        return replace(self, isr=tuple(one for one in self.isr if one not in leaving))

    def joined_by(self, member: Member) -> JournalRecord:
        """The record after this broker came into the ISR."""
        return replace(self, isr=(*self.isr, member), resigned=None)


class PublishedEnd(Struct, frozen=True, gc=False):
    """How far a replica reaches, told while the journal had no leader: `of_epoch` is the record's epoch then, and the
    replica appends and cuts nothing before it sees a later one."""

    of_epoch: int
    last_epoch: int  # of the last entry
    end: int


class FormerDirectory(Struct, frozen=True):
    """A directory on which this broker lived from epoch `first` to `last`, and what it lacked in the end."""

    directory: str
    first: int
    last: int
    damaged: frozenset[int]


class BrokerRecord(Struct, frozen=True):
    """A broker's registration. `clean`: this life has every byte that the one before (`previous`) had (R10)."""

    broker: int
    broker_epoch: int
    previous: int = 0
    clean: bool = False
    stopping: bool = False
    damaged: frozenset[int] = frozenset()  # journals that lack bytes which this disk has had (R6)
    ends: Mapping[int, PublishedEnd] = {}
    since: int = 0  # the first of its lives in a row on this directory
    former: tuple[FormerDirectory, ...] = ()  # other ones, the latest last
    had: Mapping[int, int] = {}  # of damaged journals that were not cut: up to where this disk has had them


class Kept(Struct, frozen=True):
    """A journal's record with the revision of its last change."""

    record: JournalRecord
    revision: int


class ClusterView(Struct, frozen=True):
    """The store as of one revision."""

    revision: int
    last_epoch: int  # of the one counter for the whole cluster
    journals: Mapping[int, Kept]
    brokers: Mapping[int, BrokerRecord]
    live: Mapping[int, int]  # broker -> the broker epoch of its session

    def is_live(self, member: Member) -> bool:
        """Whether this very life of a broker is registered and has a session."""
        registered = self.brokers.get(member.broker)
        return (
            registered is not None
            and registered.broker_epoch == member.broker_epoch
            and self.live.get(member.broker) == member.broker_epoch
        )

    def present(self, broker: int) -> BrokerRecord | None:
        """The registration of a broker that is up, in whatever life."""
        registered = self.brokers.get(broker)
        return registered if registered is not None and self.live.get(broker) == registered.broker_epoch else None


class Proposal(Struct, frozen=True):
    """A change of a journal's record, made by one transaction: only if the record is still at revision `expect`, every
    member of `registered` still is the registered life of its broker and, if it names an epoch, no later one was given
    (which then becomes the last one)."""

    record: JournalRecord
    expect: int
    registered: tuple[Member, ...] = ()
    new_epoch: int = 0
