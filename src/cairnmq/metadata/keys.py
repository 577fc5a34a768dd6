"""Free texts (group names, users, client ids) as one level of a store's key."""

from __future__ import annotations

from urllib.parse import quote, unquote


def level(text: str) -> str:
    """`text` without '/', and never "." or "..", which ZooKeeper does not take for a name."""
    return quote(text, safe="").replace(".", "%2E") if text in (".", "..") else quote(text, safe="")


def unlevel(key: str) -> str:
    """The text that `level` was given."""
    return unquote(key)
