"""What a simulated power loss may take and must leave. A model that is too kind would hide the bugs it is for."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.storage.files.disk import File
from cairnmq.testing.sim_content import PAGE, SECTOR
from cairnmq.testing.sim_disk import SimCrash, SimDisk

SEEDS = range(400)


def content(disk: SimDisk, name: str) -> bytes:
    file = disk.open(name)
    return file.read(0, file.size())


def tree(disk: SimDisk, directory: str = "") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for entry in disk.list(directory):
        name = f"{directory}/{entry}".lstrip("/")
        try:
            found[name] = content(disk, name)
        except IsADirectoryError:
            found |= tree(disk, name)
    return found


def make_file(disk: SimDisk, data: bytes = b"", name: str = "f") -> File:
    """A file whose name and content are durable."""
    file = disk.create(name)
    file.append([data])
    file.sync()
    disk.sync_dir("")
    return file


def crashed(disk: SimDisk, name: str = "f") -> list[bytes]:
    return [content(disk.crash(Random(seed)), name) for seed in SEEDS]


class TestAppend:
    def test_synced_bytes_survive_and_others_are_as_written_or_zero(self) -> None:
        disk = SimDisk(Random(1))
        file = make_file(disk, b"s" * 5000)
        for number in range(20):
            file.append([bytes([65 + number]) * 1000])
        written = file.read(0, file.size())
        for found in crashed(disk):
            assert found[:5000] == b"s" * 5000
            assert len(found) <= len(written)
            assert all(byte in (0, was) for byte, was in zip(found, written, strict=False))

    def test_every_shape_of_loss_occurs(self) -> None:
        disk = SimDisk(Random(1))
        file = make_file(disk, b"s" * 100)
        ends = {100}
        for _ in range(40):
            file.append([b"x" * 900])
            ends.add(file.size())
        written = file.read(0, file.size())
        shapes: set[str] = set()
        for found in crashed(disk):
            pages = [found[at : at + PAGE] for at in range(0, len(found), PAGE)]
            empty = [not any(page) for page in pages]
            shapes.add("all" if found == written else "nothing" if len(found) == 100 else "some")
            if True in empty and False in empty[empty.index(True) :]:
                shapes.add("a hole with whole pages behind it")
            if len(found) == len(written) and not any(found[PAGE:]):
                shapes.add("a grown size with zeros")
            for number, page in enumerate(pages[1:], 1):
                filled = len(page.rstrip(b"\0"))
                if 0 < filled < len(page):
                    shapes.add("a page as of an earlier append" if number * PAGE + filled in ends else "within one")
                if page.lstrip(b"\0") != page and any(page):
                    shapes.add("torn, with the new sectors behind the old")
                    assert (len(page) - len(page.lstrip(b"\0"))) % SECTOR == 0
            if len(found) not in ends:
                shapes.add("a size within an append")
        assert shapes == {
            "all",
            "nothing",
            "some",
            "a hole with whole pages behind it",
            "a grown size with zeros",
            "a page as of an earlier append",
            "within one",
            "torn, with the new sectors behind the old",
            "a size within an append",
        }

    def test_after_sync_everything_survives(self) -> None:
        disk = SimDisk(Random(1))
        file = make_file(disk, b"a" * 3000)
        file.append([b"b" * 9000])
        file.sync()
        assert set(crashed(disk)) == {b"a" * 3000 + b"b" * 9000}

    def test_a_crash_leaves_the_disk_as_it_was_and_the_survivor_is_durable(self) -> None:
        disk = SimDisk(Random(1))
        file = make_file(disk)
        file.append([b"x" * 30000])
        after = disk.crash()
        found = content(after, "f")
        assert set(crashed(after)) == {found}
        after.open("f", write=True).append([b"y"])
        assert content(disk, "f") == b"x" * 30000


class TestTruncate:
    def test_unsynced_it_happened_or_not(self) -> None:
        disk = SimDisk(Random(1))
        file = make_file(disk, b"a" * 10000)
        file.truncate(5000)
        outcomes = set(crashed(disk))
        # The rest of the page may have been zeroed before the new size got to the disk.
        assert {b"a" * 5000, b"a" * 10000, b"a" * 5000 + bytes(2 * PAGE - 5000) + b"a" * (10000 - 2 * PAGE)} <= outcomes
        for found in outcomes:
            assert found[:5000] == b"a" * 5000
            assert len(found) in (5000, 10000)
            assert found[2 * PAGE :] == (b"a" * (10000 - 2 * PAGE) if len(found) == 10000 else b"")

    def test_synced_the_cut_bytes_never_return(self) -> None:
        disk = SimDisk(Random(1))
        file = make_file(disk, b"a" * 10000)
        file.truncate(5000)
        file.sync()
        file.append([b"b" * 4000])
        for found in crashed(disk):
            assert found[:5000] == b"a" * 5000
            assert set(found[5000:]) <= {0, ord("b")}

    def test_followed_by_an_append_the_bytes_are_old_or_new_or_zero(self) -> None:
        disk = SimDisk(Random(1))
        file = make_file(disk, b"a" * 20000)
        file.truncate(5000)
        file.append([b"b" * 20000])
        seen: set[bytes] = set()
        for found in crashed(disk):
            assert found[:5000] == b"a" * 5000
            assert 5000 <= len(found) <= 25000
            seen |= {bytes([byte]) for byte in set(found[5000:])}
            # A block that was cut off is not the block the new bytes went to.
            behind = set(found[2 * PAGE :])
            assert not {ord("a"), ord("b")} <= behind
        assert seen == {b"a", b"b", b"\0"}

    def test_taken_back_and_written_again_many_times(self) -> None:
        disk = SimDisk(Random(1))
        file = make_file(disk, b"a" * 6000)
        for letter in b"bcdef":
            file.append([bytes([letter]) * 7000])
            file.truncate(6000)
        file.append([b"g" * 3000])
        for found in crashed(disk):
            assert found[:6000] == b"a" * 6000
            assert len(found) <= 13000
            assert len({byte for byte in found[2 * PAGE :] if byte}) <= 1
        file.sync()
        assert set(crashed(disk)) == {b"a" * 6000 + b"g" * 3000}


class TestWriteAt:
    def test_an_overwrite_survives_or_not_and_what_was_synced_is_not_lost(self) -> None:
        disk = SimDisk(Random(1))
        make_file(disk, b"old!" + b"k" * 5000)
        file = disk.open_in_place("f")
        file.write_at(0, b"mid!")
        file.write_at(0, b"new!")
        assert content(disk, "f")[:4] == content(disk.kill(), "f")[:4] == b"new!"
        seen = set()
        for found in crashed(disk):
            assert found[4:] == b"k" * 5000
            seen.add(found[:4])
        assert {b"old!", b"mid!", b"new!"} < seen, "torn ones too"
        assert all(
            byte in (o, m, n) for found in seen for byte, o, m, n in zip(found, b"old!", b"mid!", b"new!", strict=True)
        )
        file.sync()
        assert {found[:4] for found in crashed(disk)} == {b"new!"}

    def test_one_that_was_never_synced_may_be_anything_it_was(self) -> None:
        disk = SimDisk(Random(1))
        file = disk.open_in_place("f")
        for letter in b"abc":
            file.write_at(0, bytes([letter]) * 8)
        disk.sync_dir("")
        seen = set(crashed(disk))
        assert {b"", b"a" * 8, b"b" * 8, b"c" * 8} < seen
        assert all(set(found) <= set(b"abc\0") and len(found) <= 8 for found in seen)

    def test_a_failed_sync_loses_it_for_good(self) -> None:
        disk = SimDisk(Random(1))
        make_file(disk, b"old!")
        file = disk.open_in_place("f")
        file.write_at(0, b"new!")
        disk.faults[disk.operations + 1] = errno.EIO
        with pytest.raises(OSError):
            file.sync()
        assert content(disk, "f") == b"new!" and len(set(crashed(disk))) == 1

    def test_cut_and_written_over(self) -> None:
        disk = SimDisk(Random(1))
        make_file(disk, b"a" * 5000)
        file = disk.open_in_place("f")
        file.write_at(4990, b"b" * 10)
        file.truncate(4995)
        assert content(disk, "f") == b"a" * 4990 + b"b" * 5
        for found in crashed(disk):
            assert len(found) in (4995, 5000) and set(found) <= set(b"ab\0")


class TestNames:
    def test_a_synced_file_without_a_synced_name_may_be_gone(self) -> None:
        disk = SimDisk(Random(1))
        file = disk.create("f")
        file.append([b"x"])
        file.sync()
        assert {tuple(tree(disk.crash(Random(seed))).items()) for seed in SEEDS} == {(), (("f", b"x"),)}
        disk.sync_dir("")
        assert set(crashed(disk)) == {b"x"}

    def test_a_synced_name_in_an_unsynced_directory_may_be_gone(self) -> None:
        disk = SimDisk(Random(1))
        disk.make_dir("d")
        disk.create("d/f")
        disk.sync_dir("d")
        assert {disk.crash(Random(seed)).exists("d/f") for seed in SEEDS} == {True, False}
        disk.sync_dir("")
        assert {disk.crash(Random(seed)).exists("d/f") for seed in SEEDS} == {True}

    def test_independent_names_are_lost_independently(self) -> None:
        disk = SimDisk(Random(1))
        disk.create("a")
        disk.create("b")
        assert {tuple(disk.crash(Random(seed)).list("")) for seed in SEEDS} == {(), ("a",), ("b",), ("a", "b")}

    def test_on_ext4_names_are_lost_from_the_newest_and_kept_by_any_sync(self) -> None:
        disk = SimDisk(Random(1), ext4=True)
        file = disk.create("a")
        disk.create("b")
        assert {tuple(disk.crash(Random(seed)).list("")) for seed in SEEDS} == {(), ("a",), ("a", "b")}
        file.sync()
        assert {tuple(disk.crash(Random(seed)).list("")) for seed in SEEDS} == {("a", "b")}

    def test_a_rename_is_whole_or_not_at_all(self) -> None:
        disk = SimDisk(Random(1))
        make_file(disk, b"old", "new")
        make_file(disk, b"new", "old")
        disk.rename("old", "new")
        outcomes = [tree(disk.crash(Random(seed))) for seed in SEEDS]
        assert {"new": b"new"} in outcomes
        assert {"new": b"old", "old": b"new"} in outcomes
        assert all(
            len(found) in (1, 2) and found["new"] == (b"new" if len(found) == 1 else b"old") for found in outcomes
        )

    def test_a_file_renamed_twice_has_one_name(self) -> None:
        disk = SimDisk(Random(1))
        make_file(disk, b"x", "a")
        disk.rename("a", "b")
        disk.rename("b", "c")
        assert {tuple(disk.crash(Random(seed)).list("")) for seed in SEEDS} == {("a",), ("b",), ("c",)}

    def test_a_move_between_directories_is_settled_by_either(self) -> None:
        for settled in ("a", "b"):
            disk = SimDisk(Random(1))
            disk.make_dir("a")
            disk.make_dir("b")
            disk.sync_dir("")
            disk.create("a/f")
            disk.rename("a/f", "b/g")
            assert {(): 0, ("a/f",): 0, ("b/g",): 0}.keys() == {tuple(tree(disk.crash(Random(seed)))) for seed in SEEDS}
            disk.sync_dir(settled)
            assert {tuple(tree(disk.crash(Random(seed)))) for seed in SEEDS} == {("b/g",)}

    def test_a_removed_file_may_return_until_the_directory_is_synced(self) -> None:
        disk = SimDisk(Random(1))
        make_file(disk, b"x")
        disk.remove("f")
        assert {disk.crash(Random(seed)).exists("f") for seed in SEEDS} == {True, False}
        disk.sync_dir("")
        assert {disk.crash(Random(seed)).exists("f") for seed in SEEDS} == {False}

    def test_a_name_used_again_never_holds_a_mixture(self) -> None:
        disk = SimDisk(Random(1))
        make_file(disk, b"old")
        disk.remove("f")
        disk.create("f").append([b"new"])
        for seed in SEEDS:
            found = tree(disk.crash(Random(seed))).get("f", b"")
            assert found in (b"old", b"", bytes(len(found)), b"new"[: len(found)], b"n\0", b"n\0\0", b"ne\0")


class TestStops:
    @staticmethod
    def run(disk: SimDisk) -> None:
        disk.make_dir("d/e")
        disk.sync_dir("")
        disk.sync_dir("d")
        file = disk.create("d/e/f")
        file.append([b"x" * 6000])
        disk.sync_files([file])
        disk.sync_dir("d/e")
        file.truncate(10)
        disk.replace("d/point", b"1")
        disk.replace("d/point", b"2")
        disk.rename("d/e", "d/g")
        disk.remove("d/g/f")
        disk.remove_tree("d")

    def test_every_operation_can_be_stopped_in(self) -> None:
        whole = SimDisk(Random(1))
        self.run(whole)
        assert whole.operations == 24
        stopped: list[str] = []
        for number in range(1, whole.operations + 1):
            disk = SimDisk(Random(1))
            disk.crash_at = number
            with pytest.raises(SimCrash):
                self.run(disk)
            assert disk.operations == number
            stopped.append(disk.last_operation.split()[0])
            with pytest.raises(SimCrash):
                disk.create("z")
            with pytest.raises(SimCrash):
                disk.sync_dir("")
            tree(disk.crash())
            tree(disk.kill())
        assert set(stopped) == {"make_dir", "sync_dir", "create", "append", "sync", "truncate", "rename", "remove"}

    def test_a_stopped_append_has_written_any_part(self) -> None:
        sizes: set[int] = set()
        for seed in SEEDS:
            disk = SimDisk(Random(seed))
            file = make_file(disk)
            disk.crash_at = disk.operations + 1
            with pytest.raises(SimCrash):
                file.append([b"x" * 4, b"y" * 4])
            with pytest.raises(SimCrash):
                file.read(0, 1)
            found = content(disk.kill(), "f")
            assert b"xxxxyyyy".startswith(found)
            sizes.add(len(found))
        assert sizes == set(range(9))

    @pytest.mark.parametrize("ext4", [False, True])
    def test_replace_leaves_the_old_or_the_new_wherever_it_stops(self, ext4: bool) -> None:
        found: set[bytes] = set()
        for number in range(1, 6):
            for seed in SEEDS[:100]:
                disk = SimDisk(Random(seed), ext4=ext4)
                disk.replace("f", b"old" * 3000)
                disk.crash_at = disk.operations + number
                with pytest.raises(SimCrash):
                    disk.replace("f", b"new" * 3000)
                found.add(content(disk.crash(), "f"))
                found.add(content(disk.kill(), "f"))
        assert found == {b"old" * 3000, b"new" * 3000}

    def test_the_same_seed_gives_the_same_disk(self) -> None:
        def outcome(seed: int) -> list[dict[str, bytes]]:
            disk = SimDisk(Random(seed))
            disk.crash_at = 12
            with pytest.raises(SimCrash):
                self.run(disk)
            return [tree(disk.crash()) for _ in range(20)]

        assert outcome(5) == outcome(5)
        assert outcome(5) != outcome(6)

    def test_an_observer_sees_the_middle_of_every_operation(self) -> None:
        seen: list[str] = []
        parts: set[int] = set()

        def look(disk: SimDisk) -> None:
            seen.append(disk.last_operation)
            if disk.last_operation == "append d/e/f":
                parts.add(len(content(disk.kill(Random(1)), "d/e/f")))
            tree(disk.crash(Random(1)))

        disk = SimDisk(Random(1))
        disk.observe = look
        self.run(disk)
        assert len(seen) == disk.operations == 24
        assert 0 < parts.pop() < 6000

    def test_a_kill_keeps_what_was_written_and_power_may_still_take_it(self) -> None:
        disk = SimDisk(Random(1))
        file = make_file(disk, b"a" * 5000)
        file.append([b"b" * 5000])
        disk.create("g").append([b"c"])
        after = disk.kill()
        assert tree(after) == {"f": b"a" * 5000 + b"b" * 5000, "g": b"c"}
        assert len(set(crashed(after))) > 5
        assert {after.crash(Random(seed)).exists("g") for seed in SEEDS} == {True, False}
        after.open("f", write=True).append([b"d"])
        assert file.size() == 10000


class TestFaults:
    def test_a_failed_append_has_written_a_part(self) -> None:
        sizes: set[int] = set()
        for seed in SEEDS[:100]:
            disk = SimDisk(Random(seed))
            file = make_file(disk, b"ab")
            disk.faults[disk.operations + 1] = errno.ENOSPC
            with pytest.raises(OSError) as caught:
                file.append([b"cdef"])
            assert caught.value.errno == errno.ENOSPC
            sizes.add(file.size())
            file.truncate(2)
            file.append([b"xy"])
            assert content(disk, "f") == b"abxy"
        assert sizes == {2, 3, 4, 5}

    @pytest.mark.parametrize("ext4", [False, True])
    def test_other_operations_fail_without_effect(self, ext4: bool) -> None:
        disk = SimDisk(Random(1), ext4=ext4)
        file = make_file(disk, b"x")
        calls: list[Callable[[], Any]] = [
            lambda: disk.create("g"),
            lambda: disk.rename("f", "g"),
            lambda: disk.remove("f"),
            lambda: disk.make_dir("d"),
            lambda: file.truncate(0),
            lambda: disk.sync_dir(""),
        ]
        for call in calls:
            disk.faults[disk.operations + 1] = errno.EIO
            with pytest.raises(OSError) as caught:
                call()
            assert caught.value.errno == errno.EIO
            assert tree(disk) == {"f": b"x"}
            assert disk.list("") == ["f"]

    def test_a_sync_after_a_failed_one_is_not_to_be_believed(self) -> None:
        lost = 0
        for seed in SEEDS[:100]:
            disk = SimDisk(Random(seed))
            file = make_file(disk, b"a" * 5000)
            file.append([b"b" * 20000])
            disk.faults[disk.operations + 1] = errno.EIO
            with pytest.raises(OSError):
                file.sync()
            written = b"a" * 5000 + b"b" * 20000
            assert content(disk, "f") == written
            file.sync()
            file.append([b"c" * 10])
            file.sync()
            written += b"c" * 10
            assert content(disk, "f") == written
            found = {content(disk.crash(Random(n)), "f") for n in range(20)}
            assert len(found) == 1
            after = found.pop()
            assert (len(after), after[:5000], after[-10:]) == (len(written), b"a" * 5000, b"c" * 10)
            lost += after != written
        assert 30 < lost < 100

    def test_a_full_disk_takes_what_fits_until_room_is_made(self) -> None:
        disk = SimDisk(Random(1), capacity=1000)
        make_file(disk, bytes(400), "reserve")
        file = make_file(disk, b"x" * 500)
        assert disk.free_bytes() == 100
        with pytest.raises(OSError) as caught:
            file.append([b"y" * 101])
        assert (caught.value.errno, file.size(), disk.free_bytes()) == (errno.ENOSPC, 600, 0)
        disk.remove("reserve")
        file.append([b"y" * 101])
        assert file.size() == 701

    def test_damage_is_durable(self) -> None:
        disk = SimDisk(Random(1))
        make_file(disk, b"\0" * 5000)
        disk.damage("f", 4500, 0x81)
        expected = bytes(4500) + b"\x81" + bytes(499)
        assert content(disk, "f") == expected
        assert set(crashed(disk)) == {expected}

    def test_a_cold_disk_makes_readers_wait(self) -> None:
        disk = SimDisk(Random(1))
        file = make_file(disk, b"x")
        disk.cold = 0.5
        assert {file.read_cached(0, 1) for _ in range(50)} == {None, b"x"}


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 9000)),
        st.tuples(st.just("truncate"), st.integers(0, 100)),
        st.tuples(st.just("sync"), st.just(0)),
        st.tuples(st.just("kill"), st.just(0)),
        st.tuples(st.just("crash"), st.just(0)),
    ),
    max_size=20,
)


@given(steps=_STEPS, seed=st.integers(0, 2**32))
def test_no_byte_below_the_lowest_cut_since_the_last_sync_ever_changes(steps: list[Any], seed: int) -> None:
    disk = SimDisk(Random(seed))
    file = make_file(disk)
    safe = 0
    letter = 0
    for kind, number in steps:
        before = content(disk, "f")
        if kind == "append":
            letter = letter % 255 + 1
            file.append([bytes([letter]) * number])
            assert content(disk, "f") == before + bytes([letter]) * number
        elif kind == "truncate":
            size = len(before) * number // 100
            file.truncate(size)
            safe = min(safe, size)
            assert content(disk, "f") == before[:size]
        elif kind == "sync":
            file.sync()
            safe = len(before)
        else:
            disk = disk.kill() if kind == "kill" else disk.crash()
            file = disk.open("f", write=True)
            after = content(disk, "f")
            assert after[:safe] == before[:safe]
            if kind == "kill":
                assert after == before
            else:
                safe = len(after)
        for again in range(3):
            assert content(disk.crash(Random(again)), "f")[:safe] == content(disk, "f")[:safe]
