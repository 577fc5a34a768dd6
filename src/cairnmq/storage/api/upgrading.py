"""What a broker uses once, at the first start on a data directory of an earlier version."""

from __future__ import annotations

from cairnmq.storage.upgrade.upgrade import is_needed, upgrade

__all__ = ["is_needed", "upgrade"]
