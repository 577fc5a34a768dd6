"""Files are shared between connections, journals and logs."""

from __future__ import annotations

from cairnmq.broker.file_limit import connections_max
from cairnmq.settings.broker import BrokerConfig


def test_connections_leave_files_for_journals_and_logs() -> None:
    config = BrokerConfig()
    assert [connections_max(config, files) for files in (256, 1024, 20_000, 1_000_000)] == [128, 512, 15_000, 750_000]
    assert connections_max(BrokerConfig(max_connections=7), 1024) == 7
