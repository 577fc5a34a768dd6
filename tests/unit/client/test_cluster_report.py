"""Reports of brokers, merged: rows by the newest metadata and the leaders, and sentences about what is wrong."""

from __future__ import annotations

import pytest

from cairnmq.client.cluster_report import (
    DOWN,
    LIVE,
    SILENT,
    STOPPING,
    ClusterReport,
    Led,
    ReplicaTold,
    Told,
    merge,
    names,
)
from cairnmq.client.session import Node
from cairnmq.replication.controller import ABSENT_MAX_MS, ControllerMemory, decide
from cairnmq.replication.records import BrokerRecord, ClusterView, JournalRecord, Kept, Member, PublishedEnd

NODES = {number: Node(number, "127.0.0.1", 9000 + number) for number in (1, 2, 3)}
M1, M2, M3 = Member(1, 11), Member(2, 12), Member(3, 13)


def journal(
    number: int = 1, leader: Member | None = M1, isr: tuple[Member, ...] = (M1, M2, M3), **more: object
) -> Kept:
    fields = {"replicas": (1, 2, 3), "epoch": 20, **more}
    return Kept(JournalRecord(journal=number, leader=leader, isr=isr, **fields), revision=1)  # type: ignore[arg-type]


def view(*journals: Kept, revision: int = 5, down: tuple[int, ...] = (), **lives: int) -> ClusterView:
    """Brokers 1 to 3 in the lives 11, 12, 13; `b2=22`: broker 2 has restarted since."""
    epochs = {number: lives.get(f"b{number}", 10 + number) for number in (1, 2, 3)}
    return ClusterView(
        revision=revision,
        last_epoch=30,
        journals={kept.record.journal: kept for kept in journals},
        brokers={number: BrokerRecord(number, epoch) for number, epoch in epochs.items()},
        live={number: epoch for number, epoch in epochs.items() if number not in down},
    )


def one(seen: ClusterView, **fields: object) -> Told:
    return Told(seen, NODES, controller=fields.pop("controller", 1), **fields)  # type: ignore[arg-type]


def led(followers: dict[int, int], *, end: int = 1000, epoch: int = 20) -> Led:
    """Followers by the position that each has reached."""
    told = tuple(ReplicaTold(broker, reached, reached, 100 * broker) for broker, reached in followers.items())
    return Led(epoch, end, min([end, *(each for each in followers.values() if each >= 0)]), 0, told)


def test_a_cluster_at_rest_has_no_problems() -> None:
    seen = view(journal(1), journal(2, M2))
    report = merge({1: one(seen), 2: one(seen), 3: one(seen)})
    assert (report.problems, report.revision, report.controller) == ((), 5, 1)
    assert [(row.broker, row.state, row.leads, row.hosts, row.in_sync) for row in report.brokers] == [
        (1, LIVE, 1, 2, 2),
        (2, LIVE, 1, 2, 2),
        (3, LIVE, 0, 2, 2),
    ]
    assert report.brokers[0].controller and report.brokers[0].address == NODES[1]
    assert report.notes == ("journal 2: led by another broker than the preferred one",)


def test_each_broker_knows_the_age_of_its_own_session() -> None:
    seen = view(journal(1))
    report = merge({1: one(seen, session_age_ms={1: 40}), 2: one(seen, session_age_ms={2: 900})})
    assert [row.session_age_ms for row in report.brokers] == [40, 900, None]


def test_the_newest_metadata_count() -> None:
    old, new = view(journal(1, M1), revision=5), view(journal(1, M2, epoch=21), revision=6)
    for told in ({1: one(old), 2: one(new)}, {2: one(new), 1: one(old)}):
        (row,) = merge(told).journals
        assert (row.leader, row.epoch) == (2, 21)


def test_the_leader_tells_how_far_replicas_are() -> None:
    seen = view(journal(1))
    follower_guess = one(seen, led={1: led({1: 5}, end=5)})
    (row,) = merge({2: follower_guess, 1: one(seen, led={1: led({2: 900, 3: -1})})}).journals
    assert (row.end, row.replicated) == (1000, 900)
    assert [(each.broker, each.lag_bytes, each.lag_ms) for each in row.replicas] == [
        (1, 0, 0),
        (2, 100, 200),
        (3, None, None),
    ]


def test_a_leader_of_an_earlier_epoch_tells_nothing() -> None:
    seen = view(journal(1, M1, epoch=21))
    (row,) = merge({1: one(seen, led={1: led({2: 900, 3: 900}, epoch=20)})}).journals
    assert row.end is None and row.replica(2) is not None and row.replica(2).lag_bytes is None  # type: ignore[union-attr]


def test_in_sync_is_a_life() -> None:
    """Broker 2 is back, and not yet in the ISR under its new epoch."""
    (row,) = (report := merge({1: one(view(journal(1), b2=22))})).journals
    assert row.in_sync == 2
    assert [(each.broker, each.in_sync, each.live) for each in row.replicas][1] == (2, False, True)
    assert report.problems == ("broker 2 is not in sync: journal 1, 2 of 3 replicas left; it catches up",)


def test_a_broker_that_is_down() -> None:
    seen = view(journal(1, isr=(M1, M3)), journal(2, M3, isr=(M1, M3)), down=(2,))
    report = merge({1: one(seen), 3: one(seen)})
    assert report.problems == ("broker 2 is down", "broker 2 is not in sync: journals 1, 2, 2 of 3 replicas left")
    assert report.brokers[1].state == DOWN


def test_how_far_one_that_catches_up_has_to_go() -> None:
    seen = view(journal(1, isr=(M1, M3)))
    report = merge({1: one(seen, led={1: led({2: -5, 3: 1000})})})
    assert report.problems[0].endswith("it catches up")
    report = merge({1: one(seen, led={1: led({2: 400, 3: 1000})})})
    assert report.problems[0].endswith("it catches up, 600 bytes behind")


def test_a_broker_with_a_session_that_does_not_answer() -> None:
    report = merge({1: one(view(journal(1)))}, {2: "timed out"})
    assert report.problems == ("broker 2 does not answer: timed out",)
    assert report.brokers[1].state == SILENT


def test_a_broker_that_stops_is_no_problem() -> None:
    seen = view(journal(1))
    brokers = {**seen.brokers, 2: BrokerRecord(2, 12, stopping=True)}
    report = merge({1: one(ClusterView(5, 30, seen.journals, brokers, seen.live))})
    assert report.brokers[1].state == STOPPING and report.problems == ()
    assert report.notes == ("broker 2 is stopping; others take over what it leads",)


@pytest.mark.parametrize(
    ("kept", "down", "lives", "why"),
    [
        (journal(1, M1), (1,), {}, "an election is under way"),
        (journal(1, None), (), {}, "an election is under way"),
        (journal(1, None), (), {"b1": 21, "b2": 22, "b3": 23}, "all in-sync replicas have restarted"),
        (journal(1, M1, isr=(M1,)), (1,), {}, "waiting for broker 1, in sync and down. Start it, or see `cairn"),
        (journal(1, None, isr=(M1, M2)), (1,), {"b2": 22}, "after a minute the others elect a leader without"),
        (journal(1, None, isr=(M1, M2), weak=True), (1,), {"b2": 22}, "`cairn cluster elect --unclean J`"),
        (journal(1, None, isr=(M1, M2)), (1, 2), {}, "waiting for brokers 1, 2, in sync and down. Start it"),
    ],
)
def test_why_a_journal_has_no_leader(kept: Kept, down: tuple[int, ...], lives: dict[str, int], why: str) -> None:
    report = merge({3: one(view(kept, down=down, **lives), controller=3)})
    assert report.journals[0].leader == -1
    assert report.problems[0].startswith("journal 1: no leader; ") and why in report.problems[0]


@pytest.mark.parametrize(
    ("kept", "down", "damaged", "why"),
    [
        (
            journal(1, None, isr=(M1, M2), weak=True),
            (),
            (2,),
            "broker 2, in sync, lost bytes of it, and others may lack them. Restore the disk, or see `cairn cluster "
            "elect --unclean J`",
        ),
        (
            journal(1, None, isr=(M1, M2)),
            (),
            (2,),
            "broker 2, in sync, lost bytes of it; after a minute the others elect a leader without",
        ),
        (
            journal(1, None),
            (1,),
            (2, 3),
            "waiting for broker 1, in sync and down, as brokers 2, 3 lost bytes of it. Start it, or see `cairn cluster "
            "elect --unclean J`",
        ),
        (
            journal(1, None),
            (1,),
            (2,),
            "waiting for broker 1, in sync and down; after a minute the others elect a leader without",
        ),
        (
            journal(1, None, isr=(M1, M2)),
            (1,),
            (1, 2),
            "waiting for broker 1, in sync and down, as broker 2 lost bytes of it. Start it, or see `cairn cluster "
            "elect --unclean J`",
        ),
    ],
)
def test_what_a_sentence_says_of_lost_bytes_is_what_the_controller_does(
    kept: Kept, down: tuple[int, ...], damaged: tuple[int, ...], why: str
) -> None:
    """All have restarted; those that are up have told how far they reach, and more than a minute has passed."""
    record = kept.record
    brokers = {
        number: BrokerRecord(
            number,
            20 + number,
            damaged=frozenset({1} if number in damaged else ()),
            ends={1: PublishedEnd(record.epoch, 19, 1000)},
        )
        for number in (1, 2, 3)
    }
    live = {number: one.broker_epoch for number, one in brokers.items() if number not in down}
    seen = ClusterView(5, 30, {1: kept}, brokers, live)
    memory = ControllerMemory()
    assert decide(seen, memory, 0) == []
    assert bool(decide(seen, memory, ABSENT_MAX_MS)) == ("after a minute" in why)
    assert merge({3: one(seen, controller=3)}).problems[0] == f"journal 1: no leader; {why}"


def test_journals_with_one_reason_have_one_sentence() -> None:
    seen = view(*(journal(number, M1, isr=(M1,)) for number in (1, 2, 3, 7)), down=(1,))
    assert (
        merge({2: one(seen, controller=2)}).problems[0].startswith("journals 1-3, 7: no leader; waiting for broker 1")
    )


def test_trouble_of_single_brokers() -> None:
    seen = view(journal(1))
    told = {1: one(seen, controller=-1), 2: one(seen, stopped={1: "disk full"}, store_trouble="locked for 3 s")}
    told[2] = Told(
        view(journal(1), revision=4), NODES, stopped={1: "journal 1: disk full"}, store_trouble="locked for 3 s"
    )
    assert merge(told).problems == (
        "the cluster has no controller: leaders that die are not replaced until one is elected",
        "broker 2 cannot reach the metadata store: locked for 3 s",
        "broker 2, journal 1: disk full",
    )


def test_a_leader_that_waits_for_others() -> None:
    seen = view(journal(1), journal(2))
    told = one(seen, led={1: Led(20, 1000, 0, 0, (), ready=False), 2: led({2: 1000, 3: 1000})})
    assert merge({1: told}).problems == ("journal 1: the new leader waits for replicas that are in sync",)


def test_a_disk_that_lost_bytes() -> None:
    seen = view(journal(1), journal(2))
    brokers = {**seen.brokers, 3: BrokerRecord(3, 13, damaged=frozenset({2, 1}))}
    report = merge({1: one(ClusterView(5, 30, seen.journals, brokers, seen.live))})
    assert report.problems == ("broker 3 lost bytes of journals 1, 2 and copies them from others",)


def test_a_broker_that_is_down_copies_nothing_yet() -> None:
    seen = view(journal(1, isr=(M1, M2)), down=(3,))
    brokers = {**seen.brokers, 3: BrokerRecord(3, 13, damaged=frozenset({1}))}
    report = merge({1: one(ClusterView(5, 30, seen.journals, brokers, seen.live))})
    assert "broker 3 lost bytes of journal 1 and will copy them from others once it is up" in report.problems


def test_bytes_that_nobody_else_has_are_not_copied() -> None:
    """Of journal 1 broker 3 is the only replica; of journal 2 another one is in sync."""
    lone = journal(1, None, isr=(M3,), replicas=(3,))
    seen = view(lone, journal(2, M1, isr=(M1, M3)), b3=23)
    brokers = {**seen.brokers, 3: BrokerRecord(3, 23, damaged=frozenset({1, 2}))}
    report = merge({1: one(ClusterView(5, 30, seen.journals, brokers, {**seen.live, 3: 23}))})
    assert report.problems[:3] == (
        "journal 1: no leader; broker 3, in sync, lost bytes of it, and nobody else has them. Restore the disk, "
        "or see `cairn cluster elect --unclean J`",
        "broker 3 lost bytes of journal 1 and no other replica in sync has them",
        "broker 3 lost bytes of journal 2 and copies them from others",
    )


def test_a_replica_that_stays_out_does_not_catch_up() -> None:
    seen = view(*(journal(number, M1, isr=(M1, M3)) for number in (1, 2, 3)))
    told = {
        1: one(seen, led={1: led({2: 400, 3: 1000})}),
        2: one(seen, stopped={1: "too far behind", 2: "too far behind"}),
    }
    assert merge(told).problems == (
        "broker 2, journals 1, 2: too far behind",
        "broker 2 is not in sync: journals 1, 2, 2 of 3 replicas left",
        "broker 2 is not in sync: journal 3, 2 of 3 replicas left; it catches up",
    )


def test_replicas_that_are_left_are_counted_by_journal() -> None:
    seen = view(journal(1, M1, isr=(M1, M3)), journal(2, M1, isr=(M1,), replicas=(1, 2)), down=(2,))
    assert merge({1: one(seen)}).problems == (
        "broker 2 is down",
        "broker 2 is not in sync: journal 2, 1 of 2 replicas left; journal 1, 2 of 3 replicas left",
    )


def test_an_unclean_election_is_not_forgotten() -> None:
    report: ClusterReport = merge({1: one(view(journal(1, unclean=19)))})
    assert report.notes == ("journal 1: an unclean election in epoch 19 may have lost acknowledged records",)


def test_numbers_are_written_short() -> None:
    assert names("journal", [3]) == "journal 3"
    assert names("journal", [9, 1, 2, 5, 6, 7]) == "journals 1, 2, 5-7, 9"


def test_a_broker_without_replicas_that_is_down_is_no_problem() -> None:
    """Somebody tried it once; nothing waits for it."""
    seen = view(journal(replicas=(1, 2), isr=(M1, M2)), down=(3,))
    report = merge({1: one(seen), 2: one(seen)})
    assert report.problems == ()
    assert report.notes == ("broker 3 is down and has no replicas; `cairn cluster forget 3` if it is gone for good",)
    hosting = view(journal(isr=(M1, M2)), down=(3,))
    assert "broker 3 is down" in merge({1: one(hosting), 2: one(hosting)}).problems


def test_who_slows_down_whom() -> None:
    slow = ReplicaTold(2, 900, 900, 0, 500, 93, 10_000, True)
    full = ReplicaTold(3, 900, 900, 0, 500, 10, 4_096, True)
    seen = view(journal(1), journal(2))
    report = merge({1: one(seen, led={1: Led(20, 1000, 900, 900, (slow, full)), 2: Led(20, 1000, 900, 900, (slow,))})})
    assert report.problems == (
        "broker 2 slows down producers of broker 1: its splitter is behind by 93 % of the limit (journals 1, 2)",
        "broker 3 slows down producers of broker 1: its journal disk has 4,096 bytes left (journal 1)",
    )
    row = report.journals[0].replica(2)
    assert row is not None and (row.unsplit_bytes, row.unsplit_percent, row.free_bytes) == (500, 93, 10_000)


def test_links_that_cannot_be_opened() -> None:
    """Although both sides have a session. Of brokers that are down, or do not answer, that is enough."""
    seen = view(journal(1), down=(2,))
    refused = {3: "connection refused", 2: "connection refused"}
    report = merge({1: one(seen, links=refused), 3: one(seen, links={1: "the versions differ"})})
    assert "broker 1 cannot open a link to broker 3: connection refused" in report.problems
    assert "broker 3 cannot open a link to broker 1: the versions differ" in report.problems
    assert not any("link to broker 2" in problem for problem in report.problems)
    both = merge({number: one(view(journal(1)), links={3: "no response in time"}) for number in (1, 2)})
    assert both.problems == ("brokers 1, 2 cannot open a link to broker 3: no response in time",)
    silent = merge({1: one(view(journal(1)), links={3: "no response in time"})}, {3: "it is busy"})
    assert silent.problems == ("broker 3 does not answer: it is busy",)


def test_groups_that_cannot_begin() -> None:
    """One broker was asked for a coordinator, and knows why there is none."""
    seen = view(journal(1))
    report = merge({1: one(seen), 2: one(seen, slots_trouble="3 brokers are needed")})
    assert report.problems == ("consumer groups and transactions cannot begin: 3 brokers are needed",)
