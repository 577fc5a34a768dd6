"""What is special about sessions that are objects of one process: the caller brings the time."""

from __future__ import annotations

from pathlib import Path

from cairnmq.metadata.sqlite import SqliteStore
from unit.metadata.conformance import done


def test_the_deadline_is_exact(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "meta.db"))
    session = store.session(now_ms=1000, timeout_ms=100)
    assert store.expire(1099) == 0 and session.live
    assert session.renew(1099)
    assert store.expire(1198) == 0 and session.live
    assert store.expire(1199) == 1 and not session.live
    store.close()


def test_a_late_renewal_is_too_late_even_if_nobody_looked(tmp_path: Path) -> None:
    """A paused process that wakes must not go on as if nothing had happened."""
    store = SqliteStore(str(tmp_path / "meta.db"))
    session = store.session(now_ms=1000, timeout_ms=100)
    done(session.register("brokers/1", b"here"))
    assert not session.renew(1100)
    assert store.get("brokers/1") is None
    store.close()


def test_closing_the_store_ends_its_sessions(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "meta.db"))
    session = store.session(now_ms=0, timeout_ms=100)
    store.close()
    assert not session.live
