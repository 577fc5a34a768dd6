"""What the checker knows of several brokers: acks=1, plain producers that send again, members of groups."""

from __future__ import annotations

import pytest

from crash.ledger import Place
from history.checker import Kind, findings
from history.events import Result, Seen
from history.model import GROUP, PLACES, Model, last_reads

FIRST = PLACES[0]


def kinds(model: Model) -> set[Kind]:
    return {finding.kind for finding in findings(model.history)}


def led(model: Model, epoch: int, place: Place = FIRST, node: int = 0) -> None:
    model.history.leadership(model.history.now(), place, epoch, node)


def sent(model: Model, *, weak: bool = False, plain: bool = False) -> str:
    send = model.send()
    send.weak, send.plain = weak, plain
    return send.value


def closed(model: Model) -> Model:
    for place in PLACES:
        model.poll(place)
    model.snapshot()
    return model


def lose(model: Model, value: str) -> None:
    """By a leader that nobody followed: what came later has its place."""
    log = model.logs[FIRST]
    log[:] = [send for send in log if send is None or send.value != value]


@pytest.mark.parametrize("changed", [True, False])
def test_a_weak_record_may_be_lost_with_its_leader(changed: bool) -> None:
    model = Model()
    led(model, 3)
    value = sent(model, weak=True)
    lose(model, value)
    sent(model)
    led(model, 4 if changed else 3)
    assert kinds(closed(model)) == (set() if changed else {Kind.LOST, Kind.INCONSISTENT_OFFSET})


def test_a_strong_record_may_not() -> None:
    model = Model()
    led(model, 3)
    lose(model, sent(model))
    led(model, 4)
    assert kinds(closed(model)) == {Kind.LOST}


def test_a_leader_that_was_new_before_the_record_is_no_excuse() -> None:
    model = Model()
    led(model, 3)
    led(model, 4)
    lose(model, sent(model, weak=True))
    led(model, 4)
    assert kinds(closed(model)) == {Kind.LOST}


@pytest.mark.parametrize("both", [True, False])
def test_a_leader_that_has_not_heard_yet_is_an_excuse(both: bool) -> None:
    model = Model()
    for node in (1, 2):
        led(model, 3, node=node)
    led(model, 4, node=1)
    if both:
        led(model, 4, node=2)
    lose(model, sent(model, weak=True))
    for node in (1, 2):
        led(model, 4, node=node)
    assert kinds(closed(model)) == ({Kind.LOST} if both else set())


def test_another_partitions_leader_is_no_excuse() -> None:
    model = Model()
    led(model, 3)
    led(model, 1, PLACES[1])
    lose(model, sent(model, weak=True))
    led(model, 3)
    led(model, 2, PLACES[1])
    assert kinds(closed(model)) == {Kind.LOST}


@pytest.mark.parametrize("result", [Result.ACKED, Result.UNKNOWN])
def test_what_was_read_never_disappears(result: Result) -> None:
    model = Model()
    led(model, 3)
    value = sent(model, weak=True)
    model.history.sends[-1].result = result
    model.poll(FIRST)
    lose(model, value)
    led(model, 4)
    assert Kind.VANISHED in kinds(closed(model))


def test_a_plain_record_may_be_there_twice() -> None:
    for plain in (True, False):
        model = Model()
        sent(model, plain=plain)
        model.logs[FIRST].append(model.history.sends[-1])
        sent(model)
        assert kinds(closed(model)) == (set() if plain else {Kind.DOUBLED, Kind.INCONSISTENT_OFFSET})


def test_plain_records_may_change_places() -> None:
    for plain in (True, False):
        model = Model()
        for _ in range(2):
            sent(model, plain=plain)
        model.logs[FIRST].reverse()
        for send in model.history.sends:
            send.offset = None
        assert kinds(closed(model)) == (set() if plain else {Kind.REORDERED})


# Epochs that a producer begins by itself


def copied(model: Model, times: int = 1) -> str:
    """Sent, stored, and stored again as many times; the last copy is acknowledged."""
    history, log = model.history, model.logs[FIRST]
    send = history.send("idempotent", FIRST, model.name("value"))
    log.append(send)
    for _ in range(times):
        history.begin_epoch("idempotent")
        log.append(send)
    history.answer(send, Result.ACKED, len(log) - 1)
    return send.value


def test_a_copy_of_what_was_not_answered_when_an_epoch_began_is_excused() -> None:
    model = Model()
    sent(model)
    copied(model)
    copied(model, 2)
    assert not kinds(closed(model))


def test_one_epoch_excuses_one_copy() -> None:
    model = Model()
    copied(model)
    model.logs[FIRST].append(model.logs[FIRST][-1])
    assert kinds(closed(model)) == {Kind.DOUBLED}


@pytest.mark.parametrize("when", ["before it was sent", "after it was answered", "of another writer"])
def test_other_epochs_excuse_nothing(when: str) -> None:
    model = Model()
    history, log = model.history, model.logs[FIRST]
    if when == "before it was sent":
        history.begin_epoch("idempotent")
    send = history.send("idempotent", FIRST, "value")
    if when == "of another writer":
        history.begin_epoch("another")
    log += [send, send]
    history.answer(send, Result.ACKED, 1)
    if when == "after it was answered":
        history.begin_epoch("idempotent")
    assert kinds(closed(model)) == {Kind.DOUBLED, Kind.INCONSISTENT_OFFSET}


def test_the_copy_that_was_acknowledged_is_there() -> None:
    model = Model()
    copied(model)
    model.history.sends[-1].offset = 7
    assert kinds(closed(model)) == {Kind.INCONSISTENT_OFFSET}


def test_an_epoch_excuses_no_other_order() -> None:
    model = Model()
    history, log = model.history, model.logs[FIRST]
    first, second = (history.send("idempotent", FIRST, value) for value in ("first", "second"))
    history.begin_epoch("idempotent")
    log += [second, first, second]
    for send, offset in ((first, 1), (second, 2)):
        history.answer(send, Result.ACKED, offset)
    assert kinds(closed(model)) == {Kind.REORDERED}


def test_an_epoch_excuses_no_loss() -> None:
    model = Model()
    lose(model, copied(model))
    assert Kind.LOST in kinds(closed(model))


# Members of groups


def member(model: Model, name: str, start: int, end: int) -> None:
    """Had the partition while the group went from `start` to `end`."""
    records = [Seen(offset, send.value) for offset, send in enumerate(model.logs[FIRST]) if send is not None]
    model.history.read(model.history.now(), FIRST, records[start:end], committed=True, reader=name, group=GROUP)
    commit = model.history.commit(GROUP, FIRST, end)
    model.groups[GROUP, FIRST] = max(end, model.groups[GROUP, FIRST])
    model.history.answer(commit, Result.ACKED)
    model.position(FIRST)


@pytest.fixture
def model() -> Model:
    made = Model()
    for _ in range(9):
        made.send()
    return made


def test_members_that_follow_one_another(model: Model) -> None:
    member(model, "a", 0, 4)
    member(model, "b", 4, 7)
    member(model, "a again", 6, 8)  # what the one before had not committed comes twice
    assert kinds(closed(model)) == set()


def test_a_member_that_begins_behind_the_group(model: Model) -> None:
    member(model, "a", 0, 4)
    member(model, "b", 5, 7)
    assert kinds(closed(model)) == {Kind.SKIPPED}


def test_a_member_that_leaves_out_a_record(model: Model) -> None:
    member(model, "a", 0, 4)
    read = model.history.reads[-1]
    read.records = tuple(seen for seen in read.records if seen.offset != 2)
    assert kinds(closed(model)) == {Kind.SKIPPED}


def test_a_member_that_is_given_a_record_twice(model: Model) -> None:
    member(model, "a", 0, 4)
    member(model, "a", 3, 6)
    assert kinds(closed(model)) == {Kind.DOUBLED}


def test_a_group_that_goes_back(model: Model) -> None:
    member(model, "a", 0, 4)
    model.groups[GROUP, FIRST] = 2
    model.position(FIRST)
    assert kinds(closed(model)) == {Kind.OFFSET_BACKWARD, Kind.INVENTED}


def test_above_where_the_group_is_nothing_is_missed(model: Model) -> None:
    member(model, "a", 0, 4)
    assert last_reads(closed(model).history)[FIRST].records[-1].offset == 8
    assert kinds(model) == set()
