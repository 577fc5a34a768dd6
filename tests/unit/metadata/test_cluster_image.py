"""Brokers and journals as of one revision, from the changes of the store."""

from __future__ import annotations

from cairnmq.metadata.cluster_image import ClusterImage, after, is_cluster_key
from cairnmq.metadata.cluster_records import (
    CONTROLLER_KEY,
    LEVEL_KEY,
    NEXT_JOURNAL,
    BrokerEntry,
    encode_broker,
    encode_journal,
    encode_member,
)
from cairnmq.metadata.store import Change
from cairnmq.replication.placement import BrokerPlace
from cairnmq.replication.records import BrokerRecord, JournalRecord, Kept, Member

ONE, TWO = Member(1, 5), Member(2, 6)
JOURNAL = JournalRecord(3, (1, 2), ONE, 9, (ONE, TWO))


def broker(member: Member, rack: str | None = None) -> bytes:
    return encode_broker(BrokerEntry(BrokerRecord(member.broker, member.broker_epoch), "h", 1, "i", 2, rack))


FULL = [
    Change("brokers/1", broker(ONE, "a"), 1),
    Change("brokers/2", broker(TWO), 2),
    Change("live/1", b"5", 3),
    Change("live/2", b"6", 4),
    Change("journals/3", encode_journal(JOURNAL), 5),
    Change(CONTROLLER_KEY, encode_member(TWO), 6),
    Change(NEXT_JOURNAL, b"4", 7),
    Change(LEVEL_KEY, b"1", 8),
]


def test_all_that_there_is() -> None:
    image = after(ClusterImage(), FULL, 9)
    assert (image.view.revision, image.view.last_epoch, image.next_journal, image.level) == (8, 9, 4, 1)
    assert image.view.journals == {3: Kept(JOURNAL, 5)} and image.view.live == {1: 5, 2: 6}
    assert (image.broker_revisions, image.live_revisions) == ({1: 1, 2: 2}, {1: 3, 2: 4})
    assert (image.controller, image.controller_revision) == (TWO, 6)
    assert image.live_members() == [ONE, TWO]
    assert image.live_places() == [BrokerPlace(1, "a"), BrokerPlace(2)]


def test_what_goes() -> None:
    full = after(ClusterImage(), FULL, 9)
    image = after(full, [Change(key, None, 10) for key in ("live/2", CONTROLLER_KEY, "journals/3")], 9)
    assert image.live_members() == [ONE] and image.controller is None and not image.view.journals
    assert full.view.journals and full.live_members() == [ONE, TWO], "the image before stays as it was"


def test_a_session_of_a_former_life() -> None:
    image = after(ClusterImage(), [*FULL, Change("live/1", b"4", 9)], 9)
    assert image.live_members() == [TWO]


def test_the_epoch_never_falls() -> None:
    image = after(ClusterImage(), FULL, 9)
    assert after(image, [], 12).view.last_epoch == 12 and after(image, [], 3).view.last_epoch == 9


def test_which_keys_belong_here() -> None:
    assert all(is_cluster_key(change.key) for change in FULL)
    assert not any(map(is_cluster_key, ("topics/a", "ids/next-queue", "slots", "configs/1", "leaders/other")))
