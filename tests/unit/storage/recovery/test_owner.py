"""A broker beside the wrong journals refuses to start, and changes nothing; so does one that is too old for them."""

from __future__ import annotations

import errno
import logging
from random import Random

import msgspec
import pytest

from cairnmq.errors import Corrupt, Lost, TooNew
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.files.format import Leader, segment_entry
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.recovery.owner import (
    OWNER_FILE,
    Homes,
    Owner,
    OwnerWitness,
    check_owner,
    journal_counts,
    own_nodes,
    read_owner,
    write_owner,
)
from cairnmq.testing.sim_disk import SimDisk
from cairnmq.types import Counters

WITNESS = Counters(7, 12, 1 << 41, 99)


def check(
    journals: SimDisk, cluster: str = "a", *, topics: bool = True, checkpoint: bool = False, ok: bool = False
) -> None:
    read_disk = SimDisk(Random(2))
    if checkpoint:
        read_disk.make_dir("checkpoints")
        read_disk.create("checkpoints/00000000000000000001.ckpt")
    before = journals.list("")
    check_owner(journals, read_disk, cluster, where="J", has_topics=topics, accept_loss=ok)
    assert journals.list("") == before


@pytest.fixture
def journals() -> SimDisk:
    return SimDisk(Random(1))


def content(journals: SimDisk) -> bytes:
    file = journals.open(OWNER_FILE)
    return bytes(file.read(0, file.size()))


def test_journals_of_another_cluster_are_refused(journals: SimDisk) -> None:
    check(journals, topics=False)
    write_owner(journals, Owner("a"))
    check(journals)
    with pytest.raises(Corrupt, match="belong to the cluster a, this data directory to b"):
        check(journals, "b")
    with pytest.raises(Corrupt, match="belong to the cluster a.*--accept-loss does not help"):
        check(journals, "b", ok=True)
    check(journals, "a", ok=True)
    check(journals, "", ok=True)  # the metadata are new


def test_topics_without_journals_are_a_loss(journals: SimDisk) -> None:
    with pytest.raises(Lost, match="holds no journals"):
        check(journals)
    check(journals, ok=True)


def test_what_a_checkpoint_knows_of_is_judged_with_it(journals: SimDisk) -> None:
    check(journals, checkpoint=True)  # recovery says what is lost
    check(journals, checkpoint=True, ok=True)


def test_journals_without_an_owner_are_taken_as_they_are(journals: SimDisk) -> None:
    journals.make_dir("0")
    journals.create("0/00000000000000000000.jnl")
    check(journals)


def test_what_is_written_is_read_back(journals: SimDisk) -> None:
    assert read_owner(journals) is None
    write_owner(journals, Owner("a", 1, WITNESS))
    assert read_owner(journals) == Owner("a", 1, WITNESS)


def test_the_file_of_the_first_versions_is_read(journals: SimDisk) -> None:
    journals.replace(OWNER_FILE, b'{"cluster_id":"a"}')
    assert read_owner(journals) == Owner("a", 1, Counters())


def test_fields_of_later_versions_are_no_damage(journals: SimDisk) -> None:
    class Later(Owner, frozen=True):
        more: int = 5

    write_owner(journals, Later("a", 1, WITNESS))
    assert read_owner(journals) == Owner("a", 1, WITNESS)


def test_a_later_format_is_refused(journals: SimDisk) -> None:
    write_owner(journals, Owner("a", 3, WITNESS))
    with pytest.raises(TooNew, match="newer version of CairnMQ.*format is 3, this version knows 2"):
        read_owner(journals)
    with pytest.raises(TooNew):
        check(journals, ok=True)


def test_no_bit_of_it_is_believed_when_it_is_damaged(journals: SimDisk) -> None:
    write_owner(journals, Owner("a", 1, WITNESS))
    whole = content(journals)
    for at in range(len(whole) * 8):
        data = bytearray(whole)
        data[at // 8] ^= 1 << at % 8
        journals.replace(OWNER_FILE, bytes(data))
        assert read_owner(journals) in (None, Owner("a", 1, Counters())), bytes(data)
    for size in range(len(whole)):
        journals.replace(OWNER_FILE, whole[:size])
        assert read_owner(journals) is None


def test_it_is_kept_when_it_changed(journals: SimDisk) -> None:
    owner = OwnerWitness(journals, "a")
    owner.keep(WITNESS)
    before = journals.operations
    owner.keep(WITNESS)
    assert journals.operations == before
    owner.keep(msgspec.structs.replace(WITNESS, epoch=8))
    assert read_owner(journals) == Owner("a", 1, Counters(8, 12, 1 << 41, 99), placed=True, nodes=(1,))


def test_a_full_disk_does_not_keep_a_broker_from_starting(journals: SimDisk, caplog: pytest.LogCaptureFixture) -> None:
    owner = OwnerWitness(journals, "a")
    owner.keep(WITNESS)
    journals.faults[journals.operations + 1] = errno.ENOSPC
    with caplog.at_level(logging.WARNING):
        owner.keep(msgspec.structs.replace(WITNESS, epoch=8))
    assert "owner.json could not be written" in caplog.text
    assert read_owner(journals) == Owner("a", 1, WITNESS, placed=True, nodes=(1,))
    owner.keep(msgspec.structs.replace(WITNESS, epoch=8))
    assert owner.kept == Counters(8, 12, 1 << 41, 99)


def test_an_upgrade_is_known_to_the_next_start(journals: SimDisk) -> None:
    """And as long as it is not done, an older version may still open the directory."""
    owner = OwnerWitness(journals, "a")
    owner.keep(WITNESS)
    assert not owner.is_current(12)
    owner.upgraded(12, WITNESS)
    again = OwnerWitness(journals, "a")
    assert read_owner(journals) == Owner("a", 2, WITNESS, placed=True, nodes=(1,), slots_from=12)
    assert again.is_current(12) and not again.is_current(50), "facts are in slots that are none any more"
    again.keep(msgspec.structs.replace(WITNESS, epoch=8))
    assert OwnerWitness(journals, "a").is_current(12)


def test_nodes_that_have_led_these_journals(journals: SimDisk) -> None:
    assert own_nodes(journals) is None, "nobody knows: then every claim counts"
    for node_id in (4, 7):
        OwnerWitness(journals, "a", node_id).keep(WITNESS)
    assert own_nodes(journals) == {4, 7}


def test_without_the_file_segments_name_the_nodes(journals: SimDisk) -> None:
    """Else a new node id, and a file that is lost, would make damage of what the old one had synced a torn tail."""
    for number, node_id in ((0, 4), (17, 7)):
        journals.make_dir(str(number))
        file = journals.create(f"{number}/00000000000000000000.jnl")
        file.append([segment_entry(number, 1, 1, 0, 0, Leader(node_id, 1))])
    OwnerWitness(journals, "a", 9).keep(WITNESS)
    assert own_nodes(journals) == {4, 7, 9}


def test_a_new_node_does_not_start_before_its_claims_count(journals: SimDisk) -> None:
    OwnerWitness(journals, "a", 4).keep(WITNESS)
    new, later = OwnerWitness(journals, "a", 7), msgspec.structs.replace(WITNESS, epoch=8)
    journals.faults[journals.operations + 1] = errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        new.keep(later)
    assert own_nodes(journals) == {4}
    new.keep(later)
    journals.faults[journals.operations + 1] = errno.ENOSPC
    new.keep(msgspec.structs.replace(WITNESS, epoch=9))
    assert own_nodes(journals) == {4, 7}, "from then on it is a copy that may lag"


def test_it_remembers_how_many_journals_there_were_when_ids_said_where_queues_are(journals: SimDisk) -> None:
    """A queue's entries may still lie where it was at home then."""
    write_owner(journals, Owner("a", 1, journals=(2, 4)))
    OwnerWitness(journals, "a").keep(WITNESS)
    assert read_owner(journals) == Owner("a", 1, WITNESS, (2, 4), nodes=(1,)) and journal_counts(journals) == {2, 4}
    homes, spec = Homes(journals), QueueSpec(6, "t", 0, bytes(16), LogConfig(), journal=1)
    assert [number for number in range(4) if homes.may_hold(number, spec)] == [0, 1, 2]


def test_in_a_new_directory_topics_have_always_said_where_queues_are(journals: SimDisk) -> None:
    OwnerWitness(journals, "a").keep(WITNESS)
    for number in ("3", "17"):
        journals.make_dir(number)
        journals.create(f"{number}/00000000000000000000.jnl")
    OwnerWitness(journals, "a").keep(msgspec.structs.replace(WITNESS, epoch=8))
    owner = read_owner(journals)
    assert owner is not None and owner.placed and journal_counts(journals) == set()
    homes, spec = Homes(journals), QueueSpec(6, "t", 0, bytes(16), LogConfig(), journal=17)
    assert [number for number in range(20) if homes.may_hold(number, spec)] == [17]


def test_of_journals_from_before_it_was_remembered_any_number_is_possible(journals: SimDisk) -> None:
    assert journal_counts(journals) == set()
    journals.make_dir("2")
    journals.create("2/00000000000000000000.jnl")
    write_owner(journals, Owner("a"))
    assert journal_counts(journals) == {1, 2, 3}
