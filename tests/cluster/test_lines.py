"""The oracle of power cuts: what each line of the ack table is owed after each kind of loss, and what is found."""

from __future__ import annotations

import pytest

from cluster.lines import LINES, Event, Replicated
from crash.ledger import Place
from interop.clients.contract import Got

NOW, LONG_AGO = 100.0, 90.0
OLD, ACKED, SEEN = 0, 1, 2
"""Offsets: read long ago, acknowledged just now, read just now."""
ALL = {OLD, ACKED, SEEN}


def ledger(name: str) -> tuple[Replicated, Place]:
    made = Replicated(LINES[name], retried=LINES[name].synced_first)
    place = Place(name, 0)
    made.sent[place] = 100
    for offset, at in ((OLD, LONG_AGO), (ACKED, NOW), (SEEN, NOW)):
        made.note(place, offset, 10 * offset)
        made.acked_at[place][offset] = at
    for offset, at in ((OLD, LONG_AGO), (SEEN, NOW)):
        made.saw(place, offset, 10 * offset)
        made.seen[place][offset] = made.seen[place][offset]._replace(at=at)
    return made, place


def got(*numbers: int) -> list[Got]:
    return [Got(0, offset, 0, None, b"%d" % number, ()) for offset, number in enumerate(numbers)]


KEPT, FAILED_OVER = Event(), Event(one_leader=False)
LOST = Event(NOW + 0.1, one_leader=False)


@pytest.mark.parametrize(
    ("name", "event", "owed"),
    [
        *((f"all-{flush}", event, ALL) for flush in ("commit", "interval", "none") for event in (KEPT, FAILED_OVER)),
        ("all-commit", LOST, ALL),
        ("all-interval", LOST, {OLD}),
        ("all-none", LOST, {OLD}),
        *((f"one-{flush}", KEPT, ALL) for flush in ("commit", "interval", "none")),
        *((f"one-{flush}", FAILED_OVER, {OLD, SEEN}) for flush in ("commit", "interval", "none")),
        *((f"one-{flush}", LOST, {OLD}) for flush in ("commit", "interval", "none")),
    ],
)
def test_what_is_owed(name: str, event: Event, owed: set[int]) -> None:
    made, place = ledger(name)
    assert {*made.owed_after(place, event, slack=1.0).records} == owed


def test_a_loss_that_the_table_does_not_allow_is_found() -> None:
    made, place = ledger("all-interval")
    assert made.judge(place, 0, got(0), made.owed_after(place, LOST, 1.0)) == []
    (found,) = made.judge(place, 0, got(0), made.owed_after(place, KEPT, 1.0))
    assert "2 records lost that were promised, offsets 1 to 2" in found


def test_what_was_read_is_never_replaced() -> None:
    made, place = ledger("one-none")
    assert made.judge(place, 0, got(0, 7, 20), made.owed_after(place, FAILED_OVER, 1.0)) == [], "acknowledged alone"
    (found,) = made.judge(place, 0, got(0, 7, 30), made.owed_after(place, LOST, 1.0))
    assert "1 records are not what was told, first offset 2" in found


def test_what_is_gone_as_the_table_allows_is_owed_no_more() -> None:
    made, place = ledger("one-none")
    assert made.found(place, got(0, 7)) == 2
    assert made.owed_after(place, KEPT, 1.0).records == {OLD: 0, ACKED: 7}
