"""Kills, pauses and cuts of three brokers under load: a share of `make chaos KINDS=cluster`, without a JVM."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from cluster.faults import FULL, besiege
from cluster.lost_disks import WIPES

EACH = (
    "kills of a leader",
    "pauses of a broker",
    "brokers cut off",
    "cuts one way",
    "kills of a splitter",
    "refused connections",
    "clean restarts",
    "kills of two brokers",
    "kills of all brokers",
)
SOME = 3
SHARE = 5


def seed() -> int:
    return time.time_ns() // 1_000_000


def test_a_few_faults(tmp_path: Path) -> None:
    tally: Counter[str] = Counter()
    chosen = seed()
    print(f"make chaos KINDS=cluster SEED={chosen} MINUTES=0")
    besiege(tmp_path, chosen, tally, SHARE)
    assert tally["faults"] == SHARE and tally["records checked"] > 0, tally


@pytest.mark.long
@pytest.mark.parametrize("kind", EACH)
def test_one_kind_several_times(kind: str, tmp_path: Path) -> None:
    tally: Counter[str] = Counter()
    chosen = seed()
    print(f"seed {chosen}")
    besiege(tmp_path, chosen, tally, 5, names=[kind])
    assert tally[kind] == 5 and tally["records checked"] > 0, tally


@pytest.mark.long
def test_many_faults(tmp_path: Path) -> None:
    tally: Counter[str] = Counter()
    chosen = seed()
    print(f"make chaos KINDS=cluster SEED={chosen} MINUTES=0")
    besiege(tmp_path, chosen, tally)
    assert tally["faults"] >= 20 and tally["leader changes seen"] > 0, tally


@pytest.mark.long
def test_faults_under_java(tmp_path: Path) -> None:
    tally: Counter[str] = Counter()
    chosen = seed()
    print(f"make chaos KINDS=cluster-java SEED={chosen} MINUTES=0")
    besiege(tmp_path, chosen, tally, 10, program="java")
    assert tally["faults"] == 10 and tally["records checked"] > 0, tally


@pytest.mark.long
@pytest.mark.parametrize("kind", WIPES)
def test_disks_that_are_lost(kind: str, tmp_path: Path) -> None:
    tally: Counter[str] = Counter()
    chosen = seed()
    print(f"seed {chosen}")
    besiege(tmp_path, chosen, tally, SOME, names=[kind], little_kept=True)
    assert tally[kind] == SOME and tally["records checked"] > 0, tally


@pytest.mark.long
def test_a_disk_that_is_full_for_a_while(tmp_path: Path) -> None:
    tally: Counter[str] = Counter()
    chosen = seed()
    print(f"seed {chosen}")
    besiege(tmp_path, chosen, tally, 5, names=[FULL], little_kept=True, is_small=True)
    assert tally[FULL] == 5 and tally["records checked"] > 0, tally
