"""The expiry clock: whatever the wall clock does, nothing becomes too old early because of it."""

from __future__ import annotations

from cairnmq.broker.clocks import START_HOLD_MS, STEP_MS, ExpiryClock

DAY_MS = 86_400_000
TODAY_MS = 20_000 * DAY_MS
HOUR_MS = START_HOLD_MS


class Machine:
    """`wrong_ms`: how far its wall clock is ahead of the right time."""

    def __init__(self, wrong_ms: int = 0, lifetime_ms: int = 7 * DAY_MS) -> None:
        self.up_ms = 5_000
        self.wrong_ms = wrong_ms
        self.clock = ExpiryClock(lambda: self.right_ms + self.wrong_ms, lambda: self.up_ms, lambda: lifetime_ms)

    @property
    def right_ms(self) -> int:
        return TODAY_MS + self.up_ms

    def after(self, ms: int) -> int:
        """What the expiry clock shows then, less the right time."""
        self.up_ms += ms
        return self.clock() - self.right_ms


def test_after_a_start_nothing_expires_for_an_hour() -> None:
    machine = Machine()
    assert machine.clock() == 0
    machine.after(HOUR_MS - 1)
    assert machine.clock() == 0
    assert machine.after(1) == 0 and machine.after(DAY_MS) == 0


def test_what_lives_shorter_than_an_hour_waits_no_longer_than_it_lives() -> None:
    machine = Machine(lifetime_ms=1_000)
    assert machine.after(1_000) == 0


def test_a_clock_ahead_at_the_start_that_is_set_right_does_nothing() -> None:
    machine = Machine(wrong_ms=30 * DAY_MS)
    machine.after(60_000)
    assert machine.clock() == 0
    machine.wrong_ms = 0
    assert machine.after(HOUR_MS) == 0


def test_a_step_back_counts_at_once() -> None:
    machine = Machine()
    assert machine.after(HOUR_MS) == 0
    machine.wrong_ms = -DAY_MS
    assert machine.after(1) == -DAY_MS


def test_a_step_forward_does_not_count_while_what_was_dated_before_it_may_be_younger() -> None:
    machine = Machine()
    machine.after(HOUR_MS)
    machine.wrong_ms = 30 * DAY_MS
    assert machine.after(1) == 0 and machine.after(7 * DAY_MS - 1) == 0
    assert machine.after(1) == 30 * DAY_MS, "nobody has set it right: it is believed"


def test_a_step_forward_and_back_leaves_nothing_behind() -> None:
    machine = Machine()
    machine.after(HOUR_MS)
    machine.wrong_ms = 30 * DAY_MS
    machine.after(DAY_MS)
    machine.wrong_ms = 0
    assert machine.after(1) == 0 and machine.after(7 * DAY_MS) == 0


def test_a_clock_behind_at_the_start_that_is_set_right_does_not_age_what_was_dated_before() -> None:
    """Half an hour after a boot in 1970, or when 1970 was believed already: a commit of then is no 50 years old."""
    for believed in (False, True):
        machine = Machine(wrong_ms=-TODAY_MS)
        machine.after(HOUR_MS * 2 if believed else HOUR_MS // 2)
        committed_ms = machine.right_ms + machine.wrong_ms
        machine.wrong_ms = 0
        for _ in range(7 * 24):
            machine.after(HOUR_MS)
            assert machine.clock() < committed_ms + 7 * DAY_MS or machine.up_ms >= 7 * DAY_MS
        assert machine.after(HOUR_MS) == 0, "the right time, after a lifetime"


def test_small_steps_are_no_steps() -> None:
    machine = Machine()
    for minute in range(60):
        machine.wrong_ms = minute * STEP_MS // 2
        machine.after(60_000)
    assert machine.clock() == machine.right_ms + machine.wrong_ms
