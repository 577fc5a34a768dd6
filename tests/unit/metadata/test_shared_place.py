"""What `--metadata` names."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairnmq.metadata.shared_place import SharedPlace, shared_place


def test_a_broker_alone_shares_nothing() -> None:
    assert shared_place("sqlite") is None


def test_a_file() -> None:
    place = shared_place("sqlite:C:/x")
    assert place == SharedPlace(path="C:/x") and str(place) == "sqlite:C:/x"


def test_zookeeper() -> None:
    place = shared_place("zookeeper://a:1,b:2/x?ca=/secret")
    assert place is not None and place.path is None and place.zookeeper is not None
    assert str(place) == "zookeeper://a:1,b:2/x"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sqlite:", "names no file"),
        ("sqlite::memory:", "names no file"),
        ("sqlite://host/x", "names no file"),
        ("etcd://h", "is unknown; there are sqlite, sqlite:PATH or zookeeper://"),
        ("SQLITE", "is unknown"),
        ("zookeeper:h", "not an address"),
    ],
)
def test_what_makes_no_sense(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        shared_place(text)


def test_a_file_may_be_missing(tmp_path: Path) -> None:
    place = SharedPlace(path=str(tmp_path / "m"))
    assert place.is_missing()
    (tmp_path / "m").touch()
    assert not place.is_missing()
    found = shared_place("zookeeper://h")
    assert found is not None and not found.is_missing(), "nobody has been asked"
