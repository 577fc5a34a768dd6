"""The protocols stay small, and the splitter keeps them."""

from __future__ import annotations

from inspect import isfunction

from cairnmq.storage.splitter.split_records import MaintainedRecords, RepairedRecords, SplitRecords
from cairnmq.storage.splitter.splitter import Splitter
from unit.storage.splitter_harness import Broker


def verbs(protocol: type) -> list[str]:
    return [name for name, member in vars(protocol).items() if isfunction(member) and not name.startswith("_")]


def test_they_are_small() -> None:
    assert len(verbs(SplitRecords)) <= 9
    assert len(verbs(MaintainedRecords)) <= 9 and verbs(RepairedRecords) == []


def test_the_splitter_keeps_them() -> None:
    splitter: Splitter = Broker().splitter
    for protocol in (SplitRecords, MaintainedRecords, RepairedRecords):
        nouns = [name for name, member in vars(protocol).items() if isinstance(member, property)]
        assert [name for name in (*nouns, *verbs(protocol)) if not hasattr(splitter, name)] == []
