"""What broker and splitter tell each other: both processes load this, so it holds values only."""

from __future__ import annotations

from cairnmq.storage.checkpoint.split_report import Published, Resume, Round, StartProposal
from cairnmq.storage.files.damage import Place
from cairnmq.storage.queue.spec import QueueSpec

__all__ = [
    "Place",
    "Published",
    "QueueSpec",
    "Resume",
    "Round",
    "StartProposal",
]
