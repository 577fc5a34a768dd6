"""The table by which things leave: what is legal, and that nothing else is."""

from __future__ import annotations

from itertools import product

import pytest

from cairnmq.storage.splitter.leaving import (
    TRANSITIONS,
    DeletedRow,
    Departures,
    Leaving,
    MergedPacks,
    OldDirectory,
    OutOfOrder,
    Stage,
    Step,
)

ORDER = [Stage.PRESENT, Stage.REPLACED, Stage.CHECKPOINTED, Stage.SEEN, Stage.REMOVED]
FORTH = [Step.REPLACE, Step.PUBLISH, Step.SEE, Step.REMOVE]


def at(stage: Stage) -> Leaving[OldDirectory]:
    record = Leaving(OldDirectory(1))
    for step in FORTH[: ORDER.index(stage)]:
        record.take(step)
    assert record.stage is stage
    return record


@pytest.mark.parametrize(("stage", "step"), list(product(Stage, Step)), ids=lambda value: value.name.lower())
def test_every_step_from_every_stage(stage: Stage, step: Step) -> None:
    record = at(stage)
    if (stage, step) in TRANSITIONS:
        record.take(step)
        assert record.stage is TRANSITIONS[stage, step]
    else:
        with pytest.raises(OutOfOrder, match=f"no {step.name.lower()} while it is {stage.name.lower()}"):
            record.take(step)
        assert record.stage is stage


def test_no_stage_can_be_skipped() -> None:
    """Forth by one each; back only before anything durable has said otherwise."""
    for (stage, step), following in TRANSITIONS.items():
        if step is Step.WITHDRAW:
            assert (stage, following) == (Stage.REPLACED, Stage.PRESENT)
        else:
            assert ORDER.index(following) == ORDER.index(stage) + 1
    assert [step for _, step in TRANSITIONS if step is not Step.WITHDRAW] == FORTH


def test_seen_is_what_was_told_by_then() -> None:
    departures = Departures()
    first = departures.begin(MergedPacks((1, 2), 3))
    departures.publish(MergedPacks, 7)
    second = departures.begin(MergedPacks((3, 4), 5))
    departures.publish(MergedPacks, 8)
    third = departures.begin(MergedPacks((5,), None))
    assert departures.see(MergedPacks, 6) == []
    assert departures.see(MergedPacks, 7) == [first]
    assert (first.stage, second.stage, third.stage) == (Stage.SEEN, Stage.CHECKPOINTED, Stage.REPLACED)
    assert departures.see(MergedPacks, 7) == []
    assert departures.see(MergedPacks, 9) == [second], "the third is in no checkpoint"


def test_what_a_predecessor_left_must_be_told_first() -> None:
    departures = Departures()
    found = departures.found(OldDirectory(1))
    assert departures.needs_checkpoint(OldDirectory)
    assert departures.see(OldDirectory, 100) == []
    found.serial = 4
    assert not departures.needs_checkpoint(OldDirectory)
    assert departures.see(OldDirectory, 4) == [found]


def test_records_are_kept_by_kind_until_they_end() -> None:
    departures = Departures()
    row, other = departures.begin(DeletedRow(1)), departures.begin(DeletedRow(2))
    departures.begin(OldDirectory(1))
    departures.end(row)
    assert departures.of(DeletedRow) == [other]
    assert [what.queue_id for what in departures.any_of(OldDirectory)] == [1]
    assert departures.of(DeletedRow, Stage.SEEN) == []
