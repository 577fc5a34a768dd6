"""The oracle itself: each kind of broken promise is found, and a kept one is not."""

from __future__ import annotations

import pytest

from crash.ledger import Ledger, Place
from interop.clients.contract import Got

PLACE = Place("t", 0)


def log(*numbers: int, start: int = 0) -> list[Got]:
    return [Got(0, start + n, 0, None, b"%d..." % number, ()) for n, number in enumerate(numbers)]


def ledger(idempotent: bool = True) -> Ledger:
    """Five numbers sent and acknowledged at offsets 0 to 4."""
    made = Ledger(idempotent)
    made.sent[PLACE] = 5
    made.acked[PLACE] = {n: n for n in range(5)}
    return made


def test_kept_promises() -> None:
    assert ledger().findings(PLACE, log(0, 1, 2, 3, 4)) == []
    assert ledger().findings(PLACE, log(2, 3, 4, start=2)) == []


@pytest.mark.parametrize(
    ("finding", "found"),
    [
        ("lost", log(0, 1, 2, 3)),
        ("moved", log(0, 1, 3, 2, 4)),
        ("doubled", log(0, 1, 2, 3, 4, 4)),
        ("not dense", log(0, 1, 2) + log(3, 4, start=4)),
        ("once and in order", log(0, 1, 2, 3, 4, 6)),
    ],
)
def test_broken_promises(finding: str, found: list[Got]) -> None:
    assert finding in " ".join(ledger().findings(PLACE, found))


def test_doubles_are_allowed_without_idempotence_but_losses_are_not() -> None:
    plain = ledger(idempotent=False)
    plain.acked[PLACE] = {0: 0, 1: 1, 2: 2, 5: 3, 6: 4}
    assert plain.findings(PLACE, log(0, 1, 2, 1, 2, 3, 4)) == []
    assert "lost" in " ".join(plain.findings(PLACE, log(0, 1, 2, 1, 2, 3)))
