"""Brokers and journals as of one revision. Apart from the topics, so that a change of an ISR copies none of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from cairnmq.metadata.cluster_records import (
    BROKERS,
    CONTROLLER_KEY,
    FIRST_JOURNAL,
    JOURNALS,
    LEVEL_KEY,
    LIVE,
    NEXT_JOURNAL,
    BrokerEntry,
    decode_broker,
    decode_journal,
    decode_member,
    number_of,
)
from cairnmq.metadata.decoding import decoded, number
from cairnmq.metadata.store import Change
from cairnmq.replication.placement import BrokerPlace
from cairnmq.replication.records import ClusterView, Kept, Member

PREFIXES = (JOURNALS, BROKERS, LIVE)
KEYS = (CONTROLLER_KEY, LEVEL_KEY)


class ClusterImage(Struct, frozen=True):
    """A read-only value that is replaced, never changed. Revisions are those of the keys, for transactions."""

    view: ClusterView = ClusterView(0, 0, {}, {}, {})
    brokers: Mapping[int, BrokerEntry] = {}
    broker_revisions: Mapping[int, int] = {}
    live_revisions: Mapping[int, int] = {}
    controller: Member | None = None
    controller_revision: int = 0
    next_journal: int = FIRST_JOURNAL
    level: int = 0  # of messages and formats that the whole cluster has agreed on; 0: no broker was there yet

    def live_members(self) -> list[Member]:
        """Brokers that are up, by id."""
        registered = (Member(broker, entry.record.broker_epoch) for broker, entry in sorted(self.brokers.items()))
        return [member for member in registered if self.view.is_live(member)]

    def live_places(self) -> list[BrokerPlace]:
        """The same, with their racks."""
        return [BrokerPlace(member.broker, self.brokers[member.broker].rack) for member in self.live_members()]


def is_cluster_key(key: str) -> bool:
    """Whether a change of it belongs here."""
    return key.startswith(PREFIXES) or key in KEYS or key == NEXT_JOURNAL


def after(image: ClusterImage, changes: Iterable[Change], last_epoch: int) -> ClusterImage:
    """The image with these changes, which are news."""
    view = image.view
    journals, live = dict(view.journals), dict(view.live)
    brokers, broker_revisions = dict(image.brokers), dict(image.broker_revisions)
    live_revisions, revision = dict(image.live_revisions), view.revision
    controller, controller_revision = image.controller, image.controller_revision
    next_journal, level = image.next_journal, image.level
    for change in changes:
        key, value = change.key, change.value
        revision = max(revision, change.revision)
        if key.startswith(JOURNALS):
            journals.pop(number_of(key), None)
            if value is not None:
                journals[number_of(key)] = Kept(decoded(key, value, decode_journal), change.revision)
        elif key.startswith(BROKERS):
            brokers.pop(number_of(key), None)
            broker_revisions.pop(number_of(key), None)
            if value is not None:
                brokers[number_of(key)] = decoded(key, value, decode_broker)
                broker_revisions[number_of(key)] = change.revision
        elif key.startswith(LIVE):
            live.pop(number_of(key), None)
            live_revisions.pop(number_of(key), None)
            if value is not None:
                live[number_of(key)] = number(key, value)
                live_revisions[number_of(key)] = change.revision
        elif key == CONTROLLER_KEY:
            controller = None if value is None else decoded(key, value, decode_member)
            controller_revision = 0 if value is None else change.revision
        elif key == NEXT_JOURNAL and value is not None:
            next_journal = number(key, value)
        elif key == LEVEL_KEY and value is not None:
            level = number(key, value)
    registered = {broker: entry.record for broker, entry in brokers.items()}
    return ClusterImage(
        view=ClusterView(revision, max(last_epoch, view.last_epoch), journals, registered, live),
        brokers=brokers,
        broker_revisions=broker_revisions,
        live_revisions=live_revisions,
        controller=controller,
        controller_revision=controller_revision,
        next_journal=next_journal,
        level=level,
    )
