"""Replicas held against each other: silent when they are, and a line that names the one which is not."""

from __future__ import annotations

from cairnmq.storage.files.format import KeyedRow
from cairnmq.storage.recovery.owner import Owner, write_owner
from cairnmq.storage.recovery.witness import SPACE
from unit.storage.comparison_harness import compared, filled, restate


def test_equal_replicas() -> None:
    assert compared(filled(), filled(), filled()) == []


def test_queue_logs_may_be_of_another_kind() -> None:
    assert compared(filled("dedicated"), filled("shared")) == []


def test_one_that_has_more_is_no_difference() -> None:
    """Nor is one whose checkpoint lags."""
    longer, lagging = filled(turns=9), filled(turns=6)
    lagging.send(("k9", "not split"))
    assert compared(longer, filled(turns=6), lagging) == []


def test_the_odd_one_of_three_is_named() -> None:
    lines = compared(filled(), filled(first="w"), filled())
    assert [line for line in lines if line.startswith("b/journal/0/") and "differs from a and c" in line]
    assert all(line.startswith("b/") for line in lines)
    assert any("queue 1 differs from a and c at offset 0" in line for line in lines)


def test_of_two_the_second_is_named() -> None:
    lines = compared(filled(), filled(first="w"))
    assert lines and all(line.startswith("b/") and "differs from a" in line for line in lines)


def test_replicas_of_other_clusters_are_not_compared() -> None:
    ours, too, theirs = filled(), filled(), filled(first="w")
    write_owner(ours.journal_disk, Owner("ours"))
    write_owner(too.journal_disk, Owner("ours"))
    write_owner(theirs.journal_disk, Owner("theirs"))
    assert compared(ours, theirs, too) == [
        "note: b: belongs to the cluster theirs, as no other of these: it is not compared"
    ]


def test_a_checkpoint_without_the_queue() -> None:
    whole, short = filled(), filled()
    restate(short, lambda image: image.queues.pop(1))
    sure = compared(whole, short, queues={1})
    assert sure == ["b: queue 1 is not in the checkpoint, but in that of a"]
    assert compared(whole, short) == [f"note: {line}" for line in sure]  # it may have been deleted
    assert compared(whole, short, queues=set()) == []


def test_facts_of_coordinators() -> None:
    one, other = filled(), filled()
    for broker, value in ((one, b"1"), (other, b"2")):
        fact = KeyedRow(4, "offsets", b"g", value)
        restate(broker, lambda image, fact=fact: image.keyed.update({("offsets", b"g"): fact}))  # type: ignore[misc]
    assert compared(one, other) == ["b: offsets key b'g' in the checkpoint differs from that of a"]


def test_the_witness_is_each_nodes_own() -> None:
    one, other = filled(), filled()
    for broker, value in ((one, b"1"), (other, b"2")):
        fact = KeyedRow(0, SPACE, b"metadata", value)
        restate(broker, lambda image, fact=fact: image.keyed.update({(SPACE, b"metadata"): fact}))  # type: ignore[misc]
    assert compared(one, other) == []
