"""How far recovery is: said once a second, and asked whether it should go on."""

from __future__ import annotations

import logging

import pytest

from cairnmq.broker.start_errors import Stopped
from cairnmq.broker.start_report import RecoveryProgress


def test_progress_is_said_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now = 5.0
    progress = RecoveryProgress(lambda: False, lambda: now)
    for now, scanned in ((5.5, 10), (6.0, 20), (6.9, 30), (7.1, 40)):  # noqa: B007 - read by the clock
        progress(scanned, 100)
    assert [record.message for record in caplog.records] == [
        f"recovery: {scanned} of 100 journal bytes scanned" for scanned in (20, 40)
    ]


def test_a_broker_that_is_to_stop_ends_recovery() -> None:
    with pytest.raises(Stopped):
        RecoveryProgress(lambda: True, lambda: 0.0)(1, 2)
