"""What `cairn repair` uses: a checkpoint rebuilt from what the other files say."""

from __future__ import annotations

from cairnmq.storage.checkpoint_repair.checkpoint_repair import Metadata, carry_out, find_problem, make_plan

__all__ = [
    "Metadata",
    "carry_out",
    "find_problem",
    "make_plan",
]
