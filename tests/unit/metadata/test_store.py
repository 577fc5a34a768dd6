"""SqliteStore is a MetadataStore for the type checker too; keys have one place."""

from __future__ import annotations

from pathlib import Path

from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.store import Away, MetadataStore, Session, Watch, leader_key


def test_the_protocol_is_met(tmp_path: Path) -> None:
    opened = SqliteStore(str(tmp_path / "meta.db"))
    store: MetadataStore = opened
    watch: Watch = opened.watch(0)
    made_session = opened.session(1)
    assert not isinstance(made_session, Away)
    session: Session = made_session
    for made, protocol in ((store, MetadataStore), (watch, Watch), (session, Session)):
        wanted = {name for name in vars(protocol) if not name.startswith("_")}
        assert wanted and wanted <= set(dir(made))
    opened.close()


def test_leaders_are_listed_together() -> None:
    assert leader_key("controller") == "leaders/controller"
