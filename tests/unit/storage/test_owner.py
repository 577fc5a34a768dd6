"""A broker beside the wrong journals refuses to start, and changes nothing."""

from __future__ import annotations

from random import Random

import pytest

from cairnmq.errors import Corrupt
from cairnmq.storage.loss import Lost
from cairnmq.storage.owner import OWNER_FILE, claim_journals
from cairnmq.testing.sim_disk import SimDisk


def claim(
    journals: SimDisk, cluster: str = "a", *, topics: bool = True, checkpoint: bool = False, ok: bool = False
) -> None:
    read_disk = SimDisk(Random(2))
    if checkpoint:
        read_disk.make_dir("checkpoints")
        read_disk.create("checkpoints/00000000000000000001.ckpt")
    claim_journals(journals, read_disk, cluster, where="J", has_topics=topics, accept_loss=ok)


@pytest.fixture
def journals() -> SimDisk:
    return SimDisk(Random(1))


def test_the_first_start_claims_and_later_ones_compare(journals: SimDisk) -> None:
    claim(journals, topics=False)
    claim(journals)
    with pytest.raises(Corrupt, match="belong to the cluster a, this data directory to b"):
        claim(journals, "b")
    claim(journals, "b", ok=True)
    claim(journals, "b")


def test_topics_without_journals_are_a_loss(journals: SimDisk) -> None:
    with pytest.raises(Lost, match="holds no journals"):
        claim(journals)
    assert journals.list("") == []
    claim(journals, ok=True)


def test_what_a_checkpoint_knows_of_is_judged_with_it(journals: SimDisk) -> None:
    claim(journals, checkpoint=True)  # recovery says what is lost
    assert not journals.exists(OWNER_FILE)
    claim(journals, checkpoint=True, ok=True)
    assert journals.exists(OWNER_FILE)


def test_journals_without_an_owner_are_taken_as_they_are(journals: SimDisk) -> None:
    journals.make_dir("0")
    journals.create("0/00000000000000000000.jnl")
    claim(journals)
    assert journals.exists(OWNER_FILE)
