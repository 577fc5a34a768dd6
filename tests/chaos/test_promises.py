"""The oracle itself: every kind of broken promise is found on every line that makes it, and a kept one is not."""

from __future__ import annotations

import pytest

from chaos.promises import KILL, LINES, POWER, Promises
from crash.ledger import Place
from interop.clients.contract import Got

PLACE = Place("t", 0)
SENT = 200
LONG_AGO, CUT_AT, SLACK = 0.0, 100.0, 1.5


def log(*numbers: int, start: int = 0) -> list[Got]:
    return [Got(0, start + n, 0, None, b"%d..." % number, ()) for n, number in enumerate(numbers)]


def promises(line: str, *, at: float = LONG_AGO, retried: bool = True) -> Promises:
    """Numbers 0 to 199 acknowledged at their own offsets at that time; acks=0: seen."""
    made = Promises(LINES[line], retried=retried)
    made.sent[PLACE] = SENT
    for number in range(SENT):
        if line == "acks-0":
            made.saw(PLACE, number, number)
            made.seen[PLACE][number] = made.seen[PLACE][number]._replace(at=at)
        else:
            made.note(PLACE, number, number)
            made.acked_at[PLACE][number] = at
    return made


def findings(made: Promises, found: list[Got], event: str = KILL, start: int = 0) -> str:
    return " ".join(made.judge(PLACE, start, found, made.owed(PLACE, event, CUT_AT, SLACK)))


@pytest.mark.parametrize("event", [KILL, POWER])
@pytest.mark.parametrize("line", LINES)
def test_kept_promises(line: str, event: str) -> None:
    assert findings(promises(line), log(*range(SENT)), event) == ""


@pytest.mark.parametrize("line", LINES)
def test_a_kill_takes_nothing_that_was_acknowledged_or_seen(line: str) -> None:
    assert "lost" in findings(promises(line, at=CUT_AT), log(*range(SENT - 1)))


@pytest.mark.parametrize("line", LINES)
def test_what_a_power_loss_may_take_at_once(line: str) -> None:
    """Just written: only what is synced before the answer must be there."""
    found = findings(promises(line, at=CUT_AT), log(*range(SENT - 100)), POWER)
    assert ("lost" in found) == (line == "all-commit")


@pytest.mark.parametrize("line", LINES)
def test_what_a_power_loss_may_take_later(line: str) -> None:
    """Long written: everything but what nobody ever promised to sync."""
    found = findings(promises(line), log(*range(SENT - 100)), POWER)
    assert ("lost" in found) == (line != "all-none")


def test_an_interval_counted_in_messages() -> None:
    """The last 50 may go, at any age below flush.ms; not one more."""
    made = promises("all-interval-messages", at=CUT_AT - 10)
    assert findings(made, log(*range(SENT - 50)), POWER) == ""
    assert "1 records lost" in findings(made, log(*range(SENT - 51)), POWER)


@pytest.mark.parametrize(
    ("finding", "found"),
    [
        ("not dense", log(*range(100)) + log(*range(100, SENT), start=101)),
        ("not what was told", log(1, 0, *range(2, SENT))),
        ("doubled, missing or out of order", log(*range(SENT), 7)),
        ("never sent", log(*range(SENT + 1))),
    ],
)
@pytest.mark.parametrize("line", LINES)
def test_broken_on_every_line(line: str, finding: str, found: list[Got]) -> None:
    if finding.startswith("doubled") and not LINES[line].idempotent:
        # A plain producer that sends again may double; one that never does may not.
        text = findings(promises(line, retried=False), found)
        assert "doubled or out of order" in text
    else:
        assert finding in findings(promises(line), found)


def test_order_without_idempotence() -> None:
    made = Promises(LINES["acks-1"], retried=True)
    made.sent[PLACE] = 10
    assert findings(made, log(0, 1, 2, 1, 2, 3)) == ""
    assert "out of order" in findings(made, log(0, 2, 1, 3))
    made.refused = True
    assert findings(made, log(0, 2, 1, 3)) == "", "what was refused comes behind what was sent next"


@pytest.mark.parametrize("retried", [True, False])
def test_an_epoch_excuses_a_copy_of_what_was_not_answered(retried: bool) -> None:
    made = Promises(LINES["all-commit"], retried=retried)
    made.sent[PLACE] = 10
    for number in range(4):
        made.note(PLACE, number, number)
    made.epoch_begun({PLACE: 2})
    for found, is_kept in (
        ((0, 1, 2, 3, 4, 5, 4, 5, 6), True),
        ((0, 1, 2, 3, 4, 5, 4, 5, 4), False),
        ((0, 1, 2, 3, 4, 3, 5), False),  # answered before
        ((0, 1, 2, 3, 5, 4, 5), False),
    ):
        assert (findings(made, log(*found)) == "") == is_kept, found
    made.epoch_begun({PLACE: 2})
    assert findings(made, log(0, 1, 2, 3, 4, 5, 4, 5, 4)) == ""
    made.sent[PLACE] = 20
    assert findings(made, log(*range(12), 11)) != "", "sent later"


def test_deleted_records_stay_deleted() -> None:
    made = promises("all-commit")
    made.trim_tried[PLACE], made.trim_confirmed[PLACE] = 20, 10
    for start in (10, 15, 20):
        assert findings(made, log(*range(start, SENT), start=start), start=start) == ""
    for start in (0, 9, 21):
        assert "starts at" in findings(made, log(*range(start, SENT), start=start), start=start)


def test_an_offset_is_not_told_twice() -> None:
    made = promises("all-commit")
    made.note(PLACE, 5, 6)
    made.saw(PLACE, 7, 7)
    made.saw(PLACE, 7, 8)
    text = findings(made, log(*range(SENT)))
    assert "offset 5 acknowledged for 5 and for 6" in text and "offset 7 was read as 7 and as 8" in text


def test_what_was_lost_rightly_is_forgotten() -> None:
    made = promises("all-none", retried=False)
    assert made.settle(PLACE, 150) == 50
    assert findings(made, log(*range(150), *range(180, SENT))) == "", "offsets were given again"
