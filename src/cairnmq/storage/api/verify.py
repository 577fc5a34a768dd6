"""What `cairn verify` uses."""

from __future__ import annotations

from cairnmq.storage.check.verify import verify

__all__ = [
    "verify",
]
