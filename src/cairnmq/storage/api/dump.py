"""What `cairn dump` uses."""

from __future__ import annotations

from cairnmq.storage.check.dump import dump_file

__all__ = [
    "dump_file",
]
