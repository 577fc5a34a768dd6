"""How many files the process may open, and how many of them connections may take."""

from __future__ import annotations

import resource

from cairnmq.settings.broker import BrokerConfig

_FILES_OF_OUR_OWN = 2000


def raise_file_limit() -> int:
    """As many open files as the system lets us have; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        return soft
    return hard if hard != resource.RLIM_INFINITY else 1 << 30


def connections_max(config: BrokerConfig, files: int) -> int:
    """A flood of connections must leave files for the journals and logs."""
    return min(config.max_connections, files - max(files // 4, min(_FILES_OF_OUR_OWN, files // 2)))
