"""How far the splitter has come in each journal, and what a successor would have to know of it."""

from __future__ import annotations

from collections.abc import Iterable

from cairnmq.errors import Fault
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage
from cairnmq.storage.checkpoint.split_report import Resume, Round
from cairnmq.storage.files.format import JournalMark


class Unreported(Fault):
    """The checkpoint on disk is not the one that the broker goes by: before any splitter begins at it, the broker has
    to go by it too (`Engine.unsplit`)."""


class Progress:
    """Positions by journal. `resume`: what was split since the last checkpoint that was reported."""

    def __init__(self, image: CheckpointImage, journals: Iterable[int], resume: Resume | None) -> None:
        if resume is not None and resume.serial != image.serial:
            raise Unreported(
                f"the broker goes by checkpoint {resume.serial}, and {image.serial} is on the read disk: it was "
                f"published, and not reported"
            )
        self.positions = {number: mark.split for number, mark in image.marks.items()}
        for number in journals:
            self.positions.setdefault(number, 0)
        self.checkpointed = dict(self.positions)
        self.epochs = {number: mark.epoch for number, mark in image.marks.items()}
        self._watermarks: dict[int, int] = {}
        self.resume = resume or Resume(serial=image.serial)

    def host(self, journal: int) -> None:
        """One that begins now."""
        self.positions.setdefault(journal, 0)
        self.checkpointed.setdefault(journal, 0)

    @property
    def epoch(self) -> int:
        return max(self.epochs.values(), default=0)

    @property
    def uncheckpointed_bytes(self) -> int:
        return sum(position - self.checkpointed[journal] for journal, position in self.positions.items())

    def finished(self, done: Round, limit: int) -> None:
        """A round is done, and may be reported."""
        if done.pack:
            self.resume.packs.append(done.pack)
        self.resume.segments_from.update({s.queue_id: s.segments_from for s in done.queues if s.last_segment >= 0})
        self.positions[done.journal] = self.resume.positions[done.journal] = done.position
        self._watermarks[done.journal] = max(limit, done.position)

    def mark(self, journal: int, old: JournalMark | None, seed: int) -> JournalMark:
        position = self.positions[journal]
        # It never falls: of a journal that has lost its end, the mark may be the only witness that there was one.
        watermark = max(self._watermarks.get(journal, 0), position, old.replicated_end if old is not None else 0)
        return JournalMark(journal, position, watermark, self.epochs.get(journal, 0), seed)

    def published(self) -> None:
        self.checkpointed = dict(self.positions)

    def reported(self, serial: int) -> None:
        """All that follows a publish is done: a successor may begin at this checkpoint."""
        self.resume = Resume(dict(self.positions), serial=serial)
