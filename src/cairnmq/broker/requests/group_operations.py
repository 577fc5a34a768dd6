"""What a client may do with a group, as describing it tells."""

from __future__ import annotations

# Read, delete, describe, describe configs, alter configs: everybody may do everything while nobody is authenticated.
_ALL = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
_NOT_ASKED = -(2**31)


def operations(asked: bool) -> int:
    return _ALL if asked else _NOT_ASKED
