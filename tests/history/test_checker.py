"""The checker itself: a fault of each kind is planted into a clean history and found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crash.ledger import Place
from history.checker import Kind, findings
from history.events import Copy, Read, Result, Seen, Transaction
from history.model import GROUP, PLACES, Model, last_reads

FIRST, SECOND = PLACES
TARGET = Place("copy", 0)


@pytest.fixture
def model() -> Iterator[Model]:
    """Committed, aborted and undecided transactions over both partitions, plain records, polls in between."""
    made = Model()
    session = made.open()
    for commit in (True, False, True):
        transaction = made.begin(session)
        for place in PLACES:
            made.send(transaction, place)
            made.send(transaction, place)
        made.poll()
        made.end(transaction, commit=commit)
        made.send(place=SECOND)
        made.poll()
    yield made


def kinds(model: Model) -> set[Kind]:
    return {finding.kind for finding in findings(model.history)}


def closed(model: Model) -> Model:
    for place in PLACES:
        model.poll(place)
    model.snapshot()
    return model


def forge(read: Read, *records: Seen) -> None:
    read.records = records


def without(read: Read, *values: str) -> None:
    forge(read, *(seen for seen in read.records if seen.value not in values))


def transaction(model: Model, number: int) -> Transaction:
    return model.history.transactions[number]


def values_of(model: Model, number: int, place: Place) -> list[str]:
    return [
        send.value
        for send in model.history.sends
        if send.transaction is transaction(model, number) and send.place == place
    ]


def test_a_clean_history(model: Model) -> None:
    assert kinds(closed(model)) == set()


def test_an_end_without_an_answer_may_have_happened_or_not(model: Model) -> None:
    for happens in (True, False):
        session = model.open()
        unsure = model.begin(session)
        for place in PLACES:
            model.send(unsure, place, result=Result.UNKNOWN)
        model.end(unsure, commit=True, result=Result.UNKNOWN, happens=happens)
    model.open()
    assert kinds(closed(model)) == set()


@pytest.mark.parametrize("number", [0, 2])
def test_a_committed_transaction_that_is_gone(model: Model, number: int) -> None:
    closed(model)
    for place, read in last_reads(model.history).items():
        without(read, *values_of(model, number, place))
    assert Kind.LOST in kinds(model)


def test_a_lost_plain_record(model: Model) -> None:
    closed(model)
    read = last_reads(model.history)[SECOND]
    without(read, next(send.value for send in model.history.sends if send.transaction is None))
    assert kinds(model) == {Kind.LOST}


def test_an_acknowledged_record_that_is_not_even_there_uncommitted(model: Model) -> None:
    closed(model)
    without(last_reads(model.history, committed=False)[FIRST], values_of(model, 1, FIRST)[0])
    assert kinds(model) == {Kind.LOST}


def test_a_record_behind_a_transaction_that_hangs(model: Model) -> None:
    """The last stable offset stands still; what was sent behind it is not seen."""
    hanging = model.begin(model.open("other"))
    model.send(hanging, FIRST)
    model.send(place=FIRST)
    assert kinds(closed(model)) == set(), "its producer may still go on with it"
    model.open("other")
    del model.committed[hanging.name]
    assert kinds(closed(model)) == {Kind.LOST}


def test_a_record_before_one_that_is_seen(model: Model) -> None:
    """Whether a transaction is open or not."""
    model.send(model.begin(model.open("other")), FIRST)
    closed(model)
    without(last_reads(model.history)[FIRST], values_of(model, 0, FIRST)[0])
    assert kinds(model) == {Kind.LOST}


def test_a_doubled_record(model: Model) -> None:
    closed(model)
    read = last_reads(model.history)[FIRST]
    last = read.records[-1]
    forge(read, *read.records, Seen(last.offset + 10, last.value))
    assert Kind.DOUBLED in kinds(model)


def test_a_record_that_a_consumer_is_given_twice(model: Model) -> None:
    closed(model)
    read = next(read for read in model.history.reads if read.reader)
    model.history.read(model.history.now(), read.place, read.records, committed=True, reader=read.reader)
    assert kinds(model) == {Kind.DOUBLED}


def test_a_consumer_that_goes_back(model: Model) -> None:
    closed(model)
    first, second, *_ = [read for read in model.history.reads if read.reader]
    first.records, second.records = second.records, first.records
    assert Kind.REORDERED in kinds(model)


def test_records_of_one_writer_in_another_order() -> None:
    model = Model()
    for send in (model.send(result=Result.UNKNOWN), model.send(result=Result.UNKNOWN)):
        model.logs[FIRST].remove(send)
        model.logs[FIRST].insert(0, send)
    model.snapshot()
    assert kinds(model) == {Kind.REORDERED}


def test_a_skipped_record(model: Model) -> None:
    closed(model)
    read = next(read for read in model.history.reads if read.reader)
    forge(read, *read.records[1:])
    assert kinds(model) == {Kind.SKIPPED}


def test_an_aborted_record(model: Model) -> None:
    closed(model)
    aborted = last_reads(model.history, committed=False)[FIRST].records
    (seen,) = [seen for seen in aborted if seen.value == values_of(model, 1, FIRST)[0]]
    model.history.read(model.history.now(), FIRST, [seen], committed=True)
    assert kinds(model) == {Kind.ABORTED_READ}


def test_an_uncommitted_record(model: Model) -> None:
    """It will be committed, but was not when it was read."""
    early = model.begin(model.open("other"))
    send = model.send(early, FIRST)
    assert send.offset is not None
    model.history.read(model.history.now(), FIRST, [Seen(send.offset, send.value)], committed=True)
    model.end(early, commit=True)
    assert kinds(closed(model)) == {Kind.UNCOMMITTED_READ}


def test_a_record_of_a_transaction_that_nobody_ended(model: Model) -> None:
    early = model.begin(model.open("other"))
    send = model.send(early, FIRST)
    model.open("other")
    closed(model)
    assert kinds(model) == set()
    assert send.offset is not None
    model.history.read(model.history.now(), FIRST, [Seen(send.offset, send.value)], committed=True)
    assert kinds(model) == {Kind.UNCOMMITTED_READ}


def test_a_record_that_nobody_sent(model: Model) -> None:
    closed(model)
    model.history.read(model.history.now(), FIRST, [Seen(1_000, "who?")], committed=False)
    assert kinds(model) == {Kind.INVENTED}


def test_a_record_that_was_refused(model: Model) -> None:
    send = model.send(result=Result.FAILED)
    closed(model)
    assert kinds(model) == set()
    model.history.read(model.history.now(), FIRST, [Seen(1_000, send.value)], committed=False)
    assert kinds(model) == {Kind.INVENTED}


def test_an_offset_with_two_records(model: Model) -> None:
    closed(model)
    one, other = last_reads(model.history)[FIRST].records[:2]
    model.history.read(model.history.now(), FIRST, [Seen(one.offset, other.value)], committed=True)
    assert kinds(model) == {Kind.INCONSISTENT_OFFSET}


def test_an_offset_that_was_acknowledged_for_another_record(model: Model) -> None:
    closed(model)
    send = model.history.sends[0]
    assert send.offset is not None
    send.offset += 1_000
    assert kinds(model) == {Kind.INCONSISTENT_OFFSET}


def test_an_offset_that_was_acknowledged_twice() -> None:
    model = Model()
    one, other = model.send(), model.send(result=Result.UNKNOWN)
    model.history.answer(other, Result.ACKED, one.offset)
    assert Kind.INCONSISTENT_OFFSET in kinds(closed(model))


@pytest.mark.parametrize("happens", [True, False])
def test_a_torn_transaction(model: Model, happens: bool) -> None:
    """Nobody knows whether it was committed; but half of it is not possible."""
    unsure = model.begin(model.open())
    for place in PLACES:
        model.send(unsure, place, result=Result.UNKNOWN)
    model.end(unsure, commit=True, result=Result.UNKNOWN, happens=happens)
    model.open()
    closed(model)
    assert kinds(model) == set()
    half = {send.value for send in model.logs[FIRST] if send is not None and send.transaction is unsure}
    reads = [read for read in model.history.reads if read.place == FIRST and read.committed]
    if happens:
        for read in reads:
            without(read, *half)
    else:
        (seen,) = [seen for seen in last_reads(model.history, committed=False)[FIRST].records if seen.value in half]
        forge(reads[-1], *reads[-1].records, seen)
    assert kinds(model) == {Kind.TORN}


def test_a_transaction_is_torn_in_a_snapshot_although_it_is_whole_later(model: Model) -> None:
    closed(model)
    read = last_reads(model.history)[SECOND]
    model.snapshot()
    without(read, *values_of(model, 2, SECOND))
    assert Kind.TORN in kinds(model)


def test_a_transaction_that_ends_during_a_snapshot_is_not_judged_by_it(model: Model) -> None:
    late = model.begin(model.open("other"))
    for place in PLACES:
        model.send(late, place)
    name, asked = "between", model.history.now()
    model.history.read(asked, FIRST, model.visible(FIRST, committed=True), committed=True, snapshot=name)
    model.end(late, commit=True)
    model.history.read(asked, SECOND, model.visible(SECOND, committed=True), committed=True, snapshot=name)
    assert kinds(closed(model)) == set()


# Zombies


def test_a_zombie_that_is_fenced(model: Model) -> None:
    old = model.open()
    before = model.begin(old)
    model.send(before, FIRST)
    model.open()
    model.send(before, SECOND, result=Result.FAILED)
    model.end(before, commit=True, result=Result.FAILED, happens=False)
    assert kinds(closed(model)) == set()


def test_a_zombie_that_commits(model: Model) -> None:
    old = model.open()
    before = model.begin(old)
    model.send(before, FIRST)
    model.open()
    model.end(before, commit=True)
    assert kinds(closed(model)) >= {Kind.ZOMBIE, Kind.ABORTED_READ}


@pytest.mark.parametrize("result", [Result.ACKED, Result.UNKNOWN])
def test_a_zombie_that_sends(model: Model, result: Result) -> None:
    """Told so or not, its records are not even there uncommitted."""
    late = model.begin(model.open())
    model.open()
    model.send(late, FIRST, result=result)
    model.committed[late.name] = False
    assert kinds(closed(model)) == {Kind.ZOMBIE}


def test_a_zombie_whose_offsets_are_taken(model: Model) -> None:
    late = model.begin(model.open())
    model.open()
    model.offset(late, 5)
    assert kinds(closed(model)) == {Kind.ZOMBIE}


# Offsets of groups


def transformed(model: Model, *, commit: bool = True, result: Result = Result.ACKED, happens: bool = True) -> None:
    """What lies in the first partition is copied, with its offsets, in one transaction of a new session."""
    session = model.open("transformer")
    end = model.position().offset
    work = model.begin(session)
    model.logs.setdefault(TARGET, [])
    sources = [seen for seen in model.visible(FIRST, committed=True) if seen.offset >= end]
    for seen in sources:
        model.send(work, TARGET, f"{seen.value}|{work.name}")
    model.offset(work, sources[-1].offset + 1)
    model.end(work, commit=commit, result=result, happens=happens)
    model.open("transformer")
    model.position()


@pytest.fixture
def copied(model: Model) -> Model:
    """Aborted once, and then copied in two transactions."""
    model.history.copies.append(Copy(GROUP, FIRST.topic, TARGET.topic))
    transformed(model, commit=False)
    transformed(model)
    model.send()
    model.send()
    transformed(model, result=Result.UNKNOWN)
    model.send()
    return closed(model)


def test_copied_once(copied: Model) -> None:
    assert len(copied.visible(TARGET, committed=True)) == len(copied.visible(FIRST, committed=True)) - 1
    assert kinds(copied) == set()


def test_a_group_s_offset_that_goes_back(copied: Model) -> None:
    copied.groups[GROUP, FIRST] = copied.history.positions[2].offset
    copied.position()
    assert Kind.OFFSET_BACKWARD in kinds(copied)


def test_a_confirmed_offset_that_is_not_there(copied: Model) -> None:
    del copied.history.positions[4:]
    copied.groups[GROUP, FIRST] = 0
    copied.position()
    assert Kind.OFFSET_BACKWARD in kinds(copied)


def test_an_offset_of_an_aborted_transaction(model: Model) -> None:
    work = model.begin(model.open("transformer"))
    model.offset(work, 3)
    model.end(work, commit=False)
    model.groups[GROUP, FIRST] = 3
    model.position()
    assert kinds(closed(model)) == {Kind.ABORTED_READ}


def test_an_offset_of_an_open_transaction(model: Model) -> None:
    work = model.begin(model.open("transformer"))
    model.offset(work, 3)
    model.groups[GROUP, FIRST] = 3
    model.position()
    model.end(work, commit=True)
    assert kinds(closed(model)) == {Kind.UNCOMMITTED_READ}


def test_an_offset_that_nobody_committed(model: Model) -> None:
    model.groups[GROUP, FIRST] = 3
    model.position()
    assert kinds(closed(model)) == {Kind.INVENTED}


def test_records_without_their_offsets(copied: Model) -> None:
    """The transaction whose end has no answer: its records came, its offset did not."""
    last = copied.history.positions[-1]
    last.offset = copied.history.commits[1].offset
    assert Kind.TORN in kinds(copied)


def test_offsets_without_their_records(copied: Model) -> None:
    read = last_reads(copied.history)[TARGET]
    last = copied.history.commits[-1].transaction
    assert last is not None
    forge(read, *(seen for seen in read.records if not seen.value.endswith(f"|{last.name}")))
    assert kinds(copied) == {Kind.TORN, Kind.SKIPPED}


def test_a_record_that_is_copied_twice(copied: Model) -> None:
    value = copied.visible(FIRST, committed=True)[0].value
    again = copied.begin(copied.open("transformer"))
    copied.send(again, TARGET, f"{value}|again")
    copied.end(again, commit=True)
    assert kinds(closed(copied)) == {Kind.DOUBLED}


def test_a_record_that_is_not_copied(copied: Model) -> None:
    """The group's offset went past it, in a transaction that is whole."""
    skipped = copied.history.send("plain", FIRST, "skipped")
    copied.history.answer(skipped, Result.UNKNOWN)
    closed(copied)
    read = last_reads(copied.history)[FIRST]
    hole = next(offset for offset in range(100) if copied.logs[FIRST][offset] is None)
    forge(read, *sorted([*read.records, Seen(hole, "skipped")]))
    assert Kind.SKIPPED in kinds(copied)


def test_copies_in_another_order(copied: Model) -> None:
    read = last_reads(copied.history)[TARGET]
    one, other, *rest = read.records
    forge(read, Seen(one.offset, other.value), Seen(other.offset, one.value), *rest)
    assert Kind.REORDERED in kinds(copied)


# Histories that cannot be judged


def test_values_must_differ(model: Model) -> None:
    model.send(value="same")
    model.send(value="same")
    with pytest.raises(ValueError, match="twice"):
        findings(closed(model).history)


def test_everything_must_be_read_at_the_end(model: Model) -> None:
    closed(model)
    model.send()
    with pytest.raises(ValueError, match="not read to its end"):
        findings(model.history)
