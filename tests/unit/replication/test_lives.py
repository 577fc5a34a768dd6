"""What the next life of a broker has, on its directory, on another one, and back on the first."""

from __future__ import annotations

from cairnmq.replication.lives import (
    FORMER_MAX,
    Lacking,
    first_life,
    life_elsewhere,
    next_life,
    others_have,
    why_remembered,
)
from cairnmq.replication.records import BrokerRecord, ClusterView, JournalRecord, Kept, Member


def journal(number: int, *isr: Member, replicas: tuple[int, ...] = (1, 2)) -> JournalRecord:
    return JournalRecord(number, replicas, None, 9, isr)


def moved(before: BrokerRecord, epoch: int, left: str, directory: str, *journals: JournalRecord) -> BrokerRecord:
    return life_elsewhere(before, epoch, Lacking(), journals, left=left, directory=directory)


def lost(*journals: int) -> Lacking:
    return Lacking(frozenset(journals))


def test_lives_on_one_directory() -> None:
    one = first_life(1, 3, lost(7))
    assert (one.broker_epoch, one.previous, one.clean, one.damaged, one.since) == (3, 0, False, {7}, 3)
    assert not next_life(BrokerRecord(1, 0), 1, 0, Lacking()).clean, "a marker of nobody"
    two = next_life(one, 5, 3, lost(8))
    assert (two.broker_epoch, two.previous, two.clean, two.damaged, two.since) == (5, 3, True, {7, 8}, 3)
    assert not next_life(two, 6, 3, Lacking()).clean


def test_what_was_damaged_and_not_cut_may_be_restored() -> None:
    one = first_life(1, 3, Lacking(frozenset({7, 8}), had={7: 500}))
    assert next_life(one, 4, 0, None).had == {7: 500}, "the process goes on"
    two = next_life(one, 5, 0, Lacking(frozenset({7}), had={7: 500}))
    assert (two.damaged, two.had) == ({7, 8}, {7: 500}), "not restored yet"
    three = next_life(two, 6, 0, Lacking(whole=frozenset({7})))
    assert (three.damaged, three.had) == ({8}, {})


def test_what_was_cut_is_not_restored_by_reaching_as_far() -> None:
    """Nor what another directory never had: only what was found damaged here, and left as it was, is told apart."""
    one = first_life(1, 3, lost(7))
    two = next_life(one, 5, 0, Lacking(frozenset({7, 8}), had={7: 500, 8: 60}))
    assert (two.damaged, two.had) == ({7, 8}, {8: 60})
    elsewhere = moved(two, 6, "a", "b", journal(8, Member(1, 5)))
    assert (elsewhere.damaged, elsewhere.had) == ({8}, {})


def test_another_directory_lacks_all_that_this_broker_hosts() -> None:
    one = first_life(1, 3, Lacking())
    two = moved(one, 5, "a", "b", journal(7, Member(1, 3)), journal(8, Member(2, 4), replicas=(2, 3)))
    assert (two.damaged, two.clean, two.previous, two.since) == ({7}, False, 3, 5)


def test_the_former_directory_has_what_its_last_life_had() -> None:
    """Not what another directory got since, nor what was noted as damaged there."""
    one = next_life(first_life(1, 3, lost(9)), 4, 0, Lacking())
    members = [journal(number, Member(1, 4)) for number in (7, 8, 9)]
    two = moved(one, 5, "a", "b", *members)
    assert two.damaged == {7, 8, 9}
    back = moved(two, 6, "b", "a", journal(7, Member(1, 4)), journal(8, Member(1, 5)), journal(9, Member(1, 4)))
    assert back.damaged == {8, 9}
    again = moved(back, 7, "a", "b", journal(7, Member(1, 4)), journal(8, Member(1, 5)))
    assert again.damaged == {7, 8}, "8 was noted there when it was left"


def test_out_of_sync_is_still_noted() -> None:
    two = moved(first_life(1, 3, Lacking()), 5, "a", "b", journal(7, Member(1, 3)))
    assert moved(two, 6, "b", "a", journal(7, Member(2, 4))).damaged == {7}


def test_what_a_scan_finds_counts_on_the_former_directory_too() -> None:
    two = moved(first_life(1, 3, Lacking()), 5, "a", "b", journal(7, Member(1, 3)))
    back = life_elsewhere(two, 6, lost(7), [journal(7, Member(1, 3))], left="b", directory="a")
    assert back.damaged == {7}


def test_few_directories_are_remembered() -> None:
    record = first_life(1, 1, Lacking())
    for number in range(2, 10):
        record = moved(record, number, f"d{number - 1}", f"d{number}")
    assert [one.directory for one in record.former] == ["d5", "d6", "d7", "d8"] and len(record.former) == FORMER_MAX


def test_who_may_be_forgotten() -> None:
    brokers = {number: first_life(number, number, Lacking()) for number in (1, 2, 3)}
    journals = {number: Kept(journal(number, replicas=(1, 2)), 5) for number in (7, 8)}
    view = ClusterView(9, 9, journals, brokers, {1: 1})
    assert why_remembered(1, view) == "broker 1 is up; stop it first"
    assert why_remembered(2, view) == "broker 2 is a replica of journals 7, 8"
    assert why_remembered(3, view) is None


def others(*isr: Member, **brokers: BrokerRecord) -> bool:
    view = ClusterView(1, 30, {}, {each.broker: each for each in brokers.values()}, {})
    return others_have(journal(4, *isr, replicas=(1, 2, 3)), 1, view)


def test_a_member_of_the_isr_has_what_another_one_lacks() -> None:
    assert others(Member(1, 11), Member(2, 12), b=BrokerRecord(2, 12))
    assert others(Member(1, 11), Member(2, 12), b=BrokerRecord(2, 22)), "also one that has started since"
    assert not others(Member(1, 11), b=BrokerRecord(2, 12)), "not one that is not in sync"


def test_a_member_that_started_since_and_lacks_bytes_does_not_have_them() -> None:
    damaged = frozenset({4})
    assert not others(Member(1, 11), Member(2, 12), b=BrokerRecord(2, 22, damaged=damaged))
    assert others(Member(1, 11), Member(2, 12), b=BrokerRecord(2, 22, damaged=frozenset({5})))
    both = {"b": BrokerRecord(2, 22, damaged=damaged), "c": BrokerRecord(3, 13)}
    assert others(Member(1, 11), Member(2, 12), Member(3, 13), **both)


def test_a_member_that_came_into_the_isr_after_its_damage_was_found_has_all() -> None:
    """It tells a moment later that it is repaired."""
    assert others(Member(2, 22), b=BrokerRecord(2, 22, damaged=frozenset({4})))
