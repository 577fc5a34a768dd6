"""What is on its way out: one record for each thing, its stage, and the only table by which a stage may change.

    PRESENT --replace--> REPLACED --publish--> CHECKPOINTED --see--> SEEN --remove--> REMOVED
       ^-----withdraw-------'

- **REPLACED**: something else holds what is needed of it, or nothing is. No checkpoint says so yet: after a crash it is
  all that there is. So it stays.
- **CHECKPOINTED**: a durable checkpoint counts its replacement and no longer counts it. A start does not need it. The
  broker may still read it: it goes by the checkpoint before. So it stays.
- **SEEN**: the broker goes by that checkpoint, and opens nothing old any more. What the broker itself has let go of
  (deleted queues, records below the log start) is seen as soon as it is checkpointed.
- **REMOVED**: its files are gone. A record that a row of the checkpoint names stays until the next checkpoint forgets
  it.

There is no way around a stage. A file that goes before the checkpoint counts is lost by a crash; one that goes before
the broker has seen that is missing for a reader. So any other step raises OutOfOrder, before a file is touched. Only
what is REPLACED can be taken back: nothing durable has said otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Any, Generic, TypeVar, cast

from msgspec import Struct

from cairnmq.storage.splitter.split_queue import SplitQueue


class Stage(Enum):
    PRESENT = auto()
    REPLACED = auto()
    CHECKPOINTED = auto()
    SEEN = auto()
    REMOVED = auto()


class Step(Enum):
    REPLACE = auto()
    WITHDRAW = auto()
    PUBLISH = auto()
    SEE = auto()
    REMOVE = auto()


TRANSITIONS: dict[tuple[Stage, Step], Stage] = {
    (Stage.PRESENT, Step.REPLACE): Stage.REPLACED,
    (Stage.REPLACED, Step.WITHDRAW): Stage.PRESENT,
    (Stage.REPLACED, Step.PUBLISH): Stage.CHECKPOINTED,
    (Stage.CHECKPOINTED, Step.SEE): Stage.SEEN,
    (Stage.SEEN, Step.REMOVE): Stage.REMOVED,
}


class OutOfOrder(AssertionError):
    """A defect: something would be removed that may still be needed."""


# ------------------------------------------------------------------------------------------------- what can leave


class MergedPacks(Struct, frozen=True, eq=False):
    """Neighbours whose records are in pack `output` now; None: nothing in them is alive."""

    inputs: tuple[int, ...]
    output: int | None


class OldDirectory(Struct, frozen=True, eq=False):
    """Of a demoted queue: its records are in a pack."""

    queue_id: int


class DeletedRow(Struct, frozen=True, eq=False):
    """A deleted queue's row in the checkpoint."""

    queue_id: int


class RetiredDirectory(Struct, frozen=True, eq=False):
    """Of a deleted queue, under the name that it was given for that."""

    directory: str


class TrimmedSegments(Struct, frozen=True, eq=False):
    """Segments below a log start that has moved."""

    queue: SplitQueue
    log_start: int


class Superseded(Struct, frozen=True, eq=False):
    """Segments that one compacted segment replaces, which takes the name of the first; `end`: the offset behind the
    last. IN_FRONT: a segment copied from packs, to come before the queue's first one; it supersedes no segment."""

    queue: SplitQueue
    bases: tuple[int, ...]
    end: int


IN_FRONT = -1

What = TypeVar("What", MergedPacks, OldDirectory, DeletedRow, RetiredDirectory, TrimmedSegments, Superseded)


class Leaving(Generic[What]):
    """One thing on its way out. `serial`: of the checkpoint whose report told the broker of it; 0: none has yet."""

    __slots__ = ("what", "stage", "serial")

    def __init__(self, what: What) -> None:
        self.what: What = what
        self.stage = Stage.PRESENT
        self.serial = 0

    def take(self, step: Step) -> None:
        stage = TRANSITIONS.get((self.stage, step))
        if stage is None:
            raise OutOfOrder(f"{self.what}: no {step.name.lower()} while it is {self.stage.name.lower()}")
        self.stage = stage

    @property
    def needs_checkpoint(self) -> bool:
        """The next checkpoint changes something for it: counts it, tells of it, or forgets it."""
        if self.stage is Stage.CHECKPOINTED:
            return not self.serial
        return self.stage is not Stage.SEEN


class Departures:
    """One splitter's records, by what they are about and in the order in which they began."""

    def __init__(self) -> None:
        self._records: dict[type[Any], dict[Leaving[Any], None]] = {}

    def begin(self, what: What) -> Leaving[What]:
        """Its replacement is there: whole, and synced by the next checkpoint at the latest."""
        record = Leaving(what)
        record.take(Step.REPLACE)
        self._records.setdefault(type(what), {})[record] = None
        return record

    def found(self, what: What) -> Leaving[What]:
        """A predecessor's: the checkpoint that was loaded counts its replacement. The broker may not know."""
        record = self.begin(what)
        record.take(Step.PUBLISH)
        return record

    def end(self, record: Leaving[Any]) -> None:
        """Nothing is left to be done about it."""
        del self._records[type(record.what)][record]

    def of(self, kind: type[What], stage: Stage | None = None) -> list[Leaving[What]]:
        records = cast(dict[Leaving[What], None], self._records.get(kind, {}))
        return [record for record in records if stage is None or record.stage is stage]

    def any_of(self, kind: type[What]) -> Iterator[What]:
        return (record.what for record in cast(dict[Leaving[What], None], self._records.get(kind, {})))

    def needs_checkpoint(self, kind: type[What]) -> bool:
        return any(record.needs_checkpoint for record in self._records.get(kind, ()))

    def publish(self, kind: type[Any], serial: int) -> None:
        """A durable checkpoint counts their replacements, and its report tells of them."""
        for record in self._records.get(kind, ()):
            if record.stage is Stage.REPLACED:
                record.take(Step.PUBLISH)
                record.serial = serial

    def see(self, kind: type[What], serial: int) -> list[Leaving[What]]:
        """Those that the broker was told of by this checkpoint, or by one before, are seen."""
        seen = [record for record in self.of(kind, Stage.CHECKPOINTED) if 0 < record.serial <= serial]
        for record in seen:
            record.take(Step.SEE)
        return seen
