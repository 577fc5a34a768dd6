"""What a broker's death would cost, from the merged report."""

from __future__ import annotations

from cairnmq.client.cluster_outlook import Outlook, outlooks
from cairnmq.client.cluster_report import DOWN, LIVE, BrokerRow, ClusterReport, JournalRow, ReplicaRow


def replica(broker: int, *, behind: int | None = 0, in_sync: bool = True) -> ReplicaRow:
    return ReplicaRow(broker, in_sync, True, behind)


def row(number: int, leader: int, *replicas: ReplicaRow, end: int | None = 1000, replicated: int = 1000) -> JournalRow:
    return JournalRow(number, leader, 20, replicas, end, replicated if end is not None else None, 0)


def look(*journals: JournalRow, down: int = 0) -> dict[int, Outlook]:
    brokers = tuple(BrokerRow(n, DOWN if n == down else LIVE, None, 0, 0, 0) for n in (1, 2, 3))
    return {one.broker: one for one in outlooks(ClusterReport(1, 1, brokers, journals, ()))}


def test_what_a_broker_leads_moves() -> None:
    found = look(row(1, 1, replica(1), replica(2), replica(3)), row(2, 2, replica(2), replica(3), replica(1)))
    assert found == {1: Outlook(1, moves=(1,)), 2: Outlook(2, moves=(2,)), 3: Outlook(3)}
    assert found[3].sentences() == []
    assert found[1].sentences() == ["journal 1 would move; no record acknowledged with acks=all is lost"]


def test_what_only_the_leader_wrote_was_promised_with_acks_1_alone() -> None:
    found = look(row(1, 1, replica(1), replica(2), replica(3), replicated=900))
    assert found[1].acks1_bytes == 100
    assert found[1].sentences()[1] == (
        "100 bytes are not on all in-sync replicas yet: records in them that were acknowledged with acks=1 may be lost"
    )


def test_the_last_one_in_sync() -> None:
    behind = (replica(2, behind=300, in_sync=False), replica(3, behind=40, in_sync=False))
    found = look(row(1, 1, replica(1), *behind))
    assert found[1] == Outlook(1, stops=(1,), only_bytes=40)
    assert found[1].sentences() == [
        "journal 1 would have no leader until it is back; its disk alone has 40 bytes",
    ]
    assert found[2] == Outlook(2), "a replica that is behind makes no difference"


def test_what_nobody_could_tell_is_said() -> None:
    unknown = (replica(2, behind=None, in_sync=False), replica(3, behind=None, in_sync=False))
    found = look(row(1, 1, replica(1), *unknown))
    assert found[1].sentences()[0].endswith("its disk alone has what was written since the others left")
    found = look(row(1, 1, replica(1), replica(2), replica(3), end=None))
    assert found[1].acks1_bytes is None and "unknown" in found[1].sentences()[1]


def test_one_more_would_be_too_many() -> None:
    found = look(row(1, 1, replica(1), replica(2), replica(3, in_sync=False)), down=3)
    assert found.keys() == {1, 2}
    assert found[1] == Outlook(1, moves=(1,), thin=(1,)) and found[2] == Outlook(2, thin=(1,))
    assert found[2].sentences() == ["journal 1 would have one replica in sync left"]


def test_factor_one() -> None:
    found = look(row(4, 3, replica(3)))
    assert found[3] == Outlook(3, single=(4,))
    assert found[3].sentences() == ["journal 4 would have no leader until it is back: replication factor 1"]
