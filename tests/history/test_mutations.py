"""Any history of a broker that keeps its word is clean; one change to it, and the checker says what kind it is."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from history.checker import Kind, findings
from history.events import History, Result, Seen, Session, Transaction
from history.model import PLACES, Model, last_reads

STEPS = 60
SEEDS = st.integers(0, 2**32 - 1)


def lived(rng: Random) -> Model:
    """Producers of two ids that commit, abort, lose answers, crash and are fenced, among polls and snapshots."""
    model = Model()
    live: dict[str, Session] = {}
    opened: dict[str, Transaction | None] = {}
    offset = 0
    for _ in range(STEPS):
        act = rng.choice(
            ("open", "send", "send", "send", "end", "end", "plain", "poll", "snapshot", "offset", "offset")
        )
        name = rng.choice(("a", "b"))
        if act == "open" or name not in live:
            zombie = opened.get(name)
            live[name] = model.open(name)
            opened[name] = None
            if zombie is not None and rng.random() < 0.5:
                model.send(zombie, rng.choice(PLACES), result=Result.FAILED)
                result = rng.choice((Result.FAILED, Result.UNKNOWN))
                model.end(zombie, commit=True, result=result, happens=False)
        elif act in ("send", "offset"):
            work = opened[name] = opened[name] or model.begin(live[name])
            for place in PLACES if act == "send" else ():
                model.send(work, place, result=rng.choice((Result.ACKED, Result.ACKED, Result.UNKNOWN)))
            if act == "offset" and name == "a":  # who commits for a group never means to go back
                offset += rng.randint(1, 5)
                model.offset(work, offset)
        elif act == "end" and (work := opened[name]) is not None:
            opened[name] = None
            happens = rng.random() < 0.8
            model.end(
                work, commit=rng.random() < 0.7, result=Result.ACKED if happens else Result.UNKNOWN, happens=happens
            )
            if not happens:
                live[name] = model.open(name)
        elif act == "plain":
            model.send(place=rng.choice(PLACES))
        elif act == "poll":
            model.poll(rng.choice(PLACES))
        else:
            model.snapshot()
            model.position()
    for name in live:
        model.open(name)
    for place in PLACES:
        model.poll(place)
    model.position()
    model.snapshot()
    return model


def acknowledged(history: History) -> list[Transaction]:
    """Committed, told so, and with records."""
    with_records = {id(send.transaction) for send in history.sends}
    return [
        each
        for each in history.transactions
        if each.end is not None and each.end.commit and each.end.result is Result.ACKED and id(each) in with_records
    ]


def lose(history: History, rng: Random) -> bool:
    read = rng.choice([*last_reads(history).values()])
    certain = {send.value for send in history.sends if send.transaction is None and send.result is Result.ACKED}
    certain |= {send.value for work in acknowledged(history) for send in history.sends if send.transaction is work}
    lost = [seen for seen in read.records if seen.value in certain]
    if lost:
        gone = rng.choice(lost)
        read.records = tuple(seen for seen in read.records if seen is not gone)
    return bool(lost)


def double(history: History, rng: Random) -> bool:
    read = rng.choice([*last_reads(history).values()])
    if read.records:
        read.records += (Seen(read.records[-1].offset + 1_000, rng.choice(read.records).value),)
    return bool(read.records)


def reorder(history: History, rng: Random) -> bool:
    read = rng.choice([*last_reads(history).values()])
    writers = {send.value: send.writer for send in history.sends if send.place == read.place}
    pairs = [
        n for n in range(len(read.records) - 1) if writers[read.records[n].value] == writers[read.records[n + 1].value]
    ]
    if pairs:
        n = rng.choice(pairs)
        records = [*read.records]
        records[n : n + 2] = [
            Seen(one.offset, other.value)
            for one, other in zip(records[n : n + 2], (records[n + 1], records[n]), strict=True)
        ]
        read.records = tuple(records)
    return bool(pairs)


def skip(history: History, rng: Random) -> bool:
    reads = [read for read in history.reads if read.reader and len(read.records) > 1]
    if reads:
        read = rng.choice(reads)
        n = rng.randrange(len(read.records) - 1)
        read.records = read.records[:n] + read.records[n + 1 :]
    return bool(reads)


def show_aborted(history: History, rng: Random) -> bool:
    aborted = {
        send.value
        for send in history.sends
        if send.transaction is not None and send.transaction.end is not None and not send.transaction.end.commit
    }
    for place, read in last_reads(history, committed=False).items():
        hidden = [seen for seen in read.records if seen.value in aborted]
        if hidden:
            history.read(history.now(), place, [rng.choice(hidden)], committed=True)
            return True
    return False


def show_early(history: History, rng: Random) -> bool:
    """A poll whose answer came before the commit of what it brought was asked for."""
    works = {send.value: send.transaction for send in history.sends if send.transaction is not None}
    for read in history.reads:
        for seen in read.records if read.reader else ():
            work = works.get(seen.value)
            if work is not None and work.end is not None:
                read.asked, read.answered = work.end.asked - 2, work.end.asked - 1
                return True
    return False


def move(history: History, rng: Random) -> bool:
    there = {seen.value for read in history.reads for seen in read.records}
    sends = [send for send in history.sends if send.offset is not None and send.value in there]
    if sends:
        rng.choice(sends).offset = 10_000
    return bool(sends)


def go_back(history: History, rng: Random) -> bool:
    highest = max((position.offset for position in history.positions), default=0)
    if highest:
        place = history.positions[0].place
        history.position(history.now(), history.positions[0].group, place, 0)
    return highest > 0


def tear(history: History, rng: Random) -> bool:
    works = acknowledged(history)
    if works:
        work = rng.choice(works)
        gone = {send.value for send in history.sends if send.transaction is work and send.place == PLACES[0]}
        for read in history.reads:
            if read.committed:
                read.records = tuple(seen for seen in read.records if seen.value not in gone)
    return bool(works)


def unfence(history: History, rng: Random) -> bool:
    """A session that has a successor commits."""
    for session in history.sessions:
        heirs = [each for each in history.sessions if each.transactional_id == session.transactional_id]
        if heirs[-1] is not session:
            history.answer(history.end(history.begin("late", session), commit=True), Result.ACKED)
            return True
    return False


MUTATIONS: dict[Callable[[History, Random], bool], Kind] = {
    lose: Kind.LOST,
    double: Kind.DOUBLED,
    reorder: Kind.REORDERED,
    skip: Kind.SKIPPED,
    show_aborted: Kind.ABORTED_READ,
    show_early: Kind.UNCOMMITTED_READ,
    move: Kind.INCONSISTENT_OFFSET,
    go_back: Kind.OFFSET_BACKWARD,
    tear: Kind.TORN,
    unfence: Kind.ZOMBIE,
}


@settings(max_examples=100)
@given(SEEDS)
def test_a_clean_history(seed: int) -> None:
    assert findings(lived(Random(seed)).history) == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_mutation_is_found(mutation: Callable[[History, Random], bool]) -> None:
    met = 0

    @settings(max_examples=60, database=None)
    @given(SEEDS)
    def found(seed: int) -> None:
        nonlocal met
        rng = Random(seed)
        history = lived(rng).history
        if mutation(history, rng):
            met += 1
            assert MUTATIONS[mutation] in {finding.kind for finding in findings(history)}

    found()
    assert met >= 15, "hardly any history had a place for it"
