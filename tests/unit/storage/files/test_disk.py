"""One suite for every Disk: the simulated one is worth nothing if it answers otherwise than the real one."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cairnmq.errors import Locked
from cairnmq.storage.files import disk as disk_module
from cairnmq.storage.files.buffers import Chunks, ResponseArena
from cairnmq.storage.files.disk import SYNCFS_ABOVE, Disk, RealDisk, lock, lock_all
from cairnmq.testing.sim_disk import SimDisk


@pytest.fixture(params=["real", "sim", "sim-ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    if request.param == "real":
        return RealDisk(tmp_path / "disk")
    return SimDisk(Random(1), ext4=request.param == "sim-ext4")


def content(disk: Disk, name: str) -> bytes:
    file = disk.open(name)
    return file.read(0, file.size() + 1)


def test_append_gathers_buffers_of_every_kind_at_the_end(disk: Disk) -> None:
    file = disk.create("f")
    assert file.append([b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3], b""]) == 6
    assert file.append([b"gh"]) == 2
    assert (file.size(), content(disk, "f")) == (8, b"abcdefgh")


def test_append_of_nothing_writes_nothing(disk: Disk) -> None:
    file = disk.create("f")
    assert file.append([]) == file.append([b"", b""]) == 0
    assert file.size() == 0


def test_append_of_more_buffers_than_one_call_takes(disk: Disk) -> None:
    buffers = [b"" if n % 7 == 0 else b"%d," % n for n in range(5000)]
    assert disk.create("f").append(buffers) == sum(map(len, buffers))
    assert content(disk, "f") == b"".join(buffers)


def test_append_of_many_empty_buffers_before_a_full_one(disk: Disk) -> None:
    assert disk.create("f").append([b""] * 3000 + [b"x"] + [b""] * 3000) == 1
    assert content(disk, "f") == b"x"


def test_append_goes_to_the_end_whoever_wrote_it(disk: Disk) -> None:
    first = disk.create("f")
    second = disk.open("f", write=True)
    first.append([b"one "])
    second.append([b"two "])
    first.append([b"three"])
    assert content(disk, "f") == b"one two three"


def test_writes_in_place(disk: Disk) -> None:
    file = disk.open_in_place("f")
    file.write_at(0, b"abcd")
    file.write_at(2, b"XYZ")
    assert content(disk, "f") == file.read(0, 10) == b"abXYZ"
    again = disk.open_in_place("f")
    again.write_at(0, b"12")
    assert content(disk, "f") == b"12XYZ"
    with pytest.raises(OSError):
        disk.open("f").write_at(0, b"x")


def test_a_file_opened_for_reading_is_not_written(disk: Disk) -> None:
    disk.create("f").append([b"kept"])
    file = disk.open("f")
    with pytest.raises(OSError):
        file.append([b"x"])
    with pytest.raises(OSError):
        file.truncate(0)
    assert content(disk, "f") == b"kept"


@pytest.mark.parametrize(
    ("position", "size"), [(0, 10000), (0, 1), (4095, 2), (4096, 4096), (9990, 100), (10000, 5), (20000, 5), (5, 0)]
)
def test_every_way_to_read_gives_the_same_bytes(disk: Disk, position: int, size: int) -> None:
    data = bytes(n % 251 for n in range(10000))
    file = disk.create("f")
    file.append([data])
    expected = data[position : position + size]
    assert file.read(position, size) == expected
    assert file.read_cached(position, size) in (None, expected)
    assert file.read_cached(position, size, ResponseArena(Chunks())) in (None, expected)
    view = bytearray(b"?" * size)
    assert file.read_into(position, memoryview(view)) == len(expected)
    assert bytes(view) == expected + b"?" * (size - len(expected))


def test_bytes_just_written_are_read_without_waiting(disk: Disk) -> None:
    file = disk.create("f")
    file.append([b"warm"])
    assert file.read_cached(0, 100) == b"warm"


def test_truncate_cuts_and_appends_follow_the_cut(disk: Disk) -> None:
    file = disk.create("f")
    file.append([b"a" * 9000])
    file.truncate(5000)
    assert file.size() == 5000
    file.append([b"b"])
    assert content(disk, "f") == b"a" * 5000 + b"b"


def test_truncate_beyond_the_end_adds_zeros_not_the_bytes_that_were_there(disk: Disk) -> None:
    file = disk.create("f")
    file.append([b"a" * 100])
    file.truncate(10)
    file.truncate(6000)
    assert content(disk, "f") == b"a" * 10 + bytes(5990)


def test_forget_and_sync_change_nothing(disk: Disk) -> None:
    file = disk.create("f")
    file.append([b"x" * 10000])
    file.sync()
    file.forget(0, 10000)
    assert file.read(0, 10000) == b"x" * 10000


def test_a_closed_file_refuses_and_close_repeats(disk: Disk) -> None:
    file = disk.create("f")
    file.close()
    file.close()
    calls: list[Callable[[], object]] = [
        lambda: file.append([b"x"]),
        lambda: file.read(0, 1),
        file.size,
        file.sync,
        lambda: file.truncate(0),
    ]
    for call in calls:
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.EBADF


def test_create_refuses_an_existing_name_and_a_missing_directory(disk: Disk) -> None:
    disk.create("f").append([b"kept"])
    with pytest.raises(FileExistsError):
        disk.create("f")
    assert content(disk, "f") == b"kept"
    with pytest.raises(FileNotFoundError):
        disk.create("missing/f")
    with pytest.raises(NotADirectoryError):
        disk.create("f/g")


@pytest.mark.parametrize("write", [False, True])
def test_open_of_a_missing_file_fails(disk: Disk, write: bool) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open("f", write=write)
    with pytest.raises(FileNotFoundError):
        disk.open("d/f", write=write)
    assert disk.list("") == []


def test_list_is_sorted_and_holds_files_and_directories(disk: Disk) -> None:
    disk.make_dir("d/e")
    for name in ("b", "a", "d/z", "d/y"):
        disk.create(name)
    assert disk.list("") == ["a", "b", "d"]
    assert disk.list("d") == ["e", "y", "z"]
    assert disk.list("d/e") == disk.list("missing") == disk.list("missing/more") == []
    with pytest.raises(NotADirectoryError):
        disk.list("a")


def test_make_dir_makes_parents_and_repeats(disk: Disk) -> None:
    disk.make_dir("a/b/c")
    disk.create("a/b/c/f")
    disk.make_dir("a/b/c")
    assert disk.list("a/b/c") == ["f"]
    with pytest.raises(OSError):
        disk.make_dir("a/b/c/f")


def test_exists_for_files_directories_and_neither(disk: Disk) -> None:
    disk.make_dir("d")
    disk.create("d/f")
    assert [disk.exists(name) for name in ("", "d", "d/f", "d/g", "e/f", "d/f/g")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


def test_allocated_room_does_not_show(disk: Disk) -> None:
    file = disk.create("f")
    file.append([b"ab"])
    file.allocate(1 << 20)
    file.append([b"cd"])
    assert (file.size(), content(disk, "f")) == (4, b"abcd")


def test_the_last_close_of_a_large_removed_file_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives back the blocks, which takes a while on some file systems."""
    disk = RealDisk(tmp_path)
    closed: dict[int, int] = {}
    is_closed = threading.Event()

    def close(fd: int, original: Callable[[int], None] = os.close) -> None:
        closed[fd] = threading.get_ident()
        original(fd)
        if fd == numbers["large"]:
            is_closed.set()

    files = {name: disk.create(name) for name in ("large", "small", "named")}
    numbers = {name: file.fileno() for name, file in files.items()}
    for name in ("large", "named"):
        files[name].append([bytes(8 << 20)])
    for name in ("large", "small"):
        disk.remove(name)
    monkeypatch.setattr(os, "close", close)
    for file in files.values():
        file.close()
    assert is_closed.wait(60)
    others = {name for name, number in numbers.items() if closed[number] != threading.get_ident()}
    assert others == {"large"}


def test_remove_takes_files_only_and_missing_is_fine(disk: Disk) -> None:
    disk.make_dir("d")
    disk.create("f")
    disk.remove("f")
    disk.remove("f")
    disk.remove("missing/f")
    assert disk.list("") == ["d"]
    with pytest.raises(OSError):
        disk.remove("d")
    assert disk.exists("d")


def test_an_open_file_outlives_its_name(disk: Disk) -> None:
    file = disk.create("f")
    file.append([b"still "])
    disk.remove("f")
    file.append([b"here"])
    assert file.read(0, 100) == b"still here"
    disk.create("f").append([b"new"])
    assert (file.size(), content(disk, "f")) == (10, b"new")


def test_remove_tree_takes_everything_and_missing_is_fine(disk: Disk) -> None:
    disk.make_dir("d/e")
    disk.create("d/f")
    disk.create("d/e/g")
    disk.create("kept")
    disk.remove_tree("d")
    disk.remove_tree("d")
    assert disk.list("") == ["kept"]
    with pytest.raises(NotADirectoryError):
        disk.remove_tree("kept")


def test_rename_replaces_a_file(disk: Disk) -> None:
    disk.create("old").append([b"new content"])
    disk.create("new").append([b"old content"])
    disk.rename("old", "new")
    assert (disk.list(""), content(disk, "new")) == (["new"], b"new content")
    with pytest.raises(FileNotFoundError):
        disk.rename("old", "new")
    with pytest.raises(FileNotFoundError):
        disk.rename("new", "missing/new")
    disk.rename("new", "new")
    assert content(disk, "new") == b"new content"


def test_rename_moves_a_directory_with_its_content(disk: Disk) -> None:
    disk.make_dir("a/b")
    file = disk.create("a/b/f")
    disk.rename("a/b", "c")
    file.append([b"x"])
    assert (disk.list("a"), content(disk, "c/f")) == ([], b"x")


def test_rename_refuses_what_would_hide_things(disk: Disk) -> None:
    disk.make_dir("full")
    disk.create("full/f")
    disk.make_dir("empty")
    disk.create("file")
    with pytest.raises(OSError):
        disk.rename("empty", "full")
    with pytest.raises(IsADirectoryError):
        disk.rename("file", "empty")
    with pytest.raises(NotADirectoryError):
        disk.rename("empty", "file")
    with pytest.raises(OSError):
        disk.rename("full", "full/inside")
    disk.rename("full", "empty")
    assert disk.list("empty") == ["f"]


def test_replace_makes_and_replaces_and_leaves_nothing_else(disk: Disk) -> None:
    disk.make_dir("d")
    disk.replace("d/f", b"one, rather long")
    assert content(disk, "d/f") == b"one, rather long"
    disk.replace("d/f", b"two")
    disk.replace("top", b"")
    assert (content(disk, "d/f"), content(disk, "top")) == (b"two", b"")
    assert (disk.list("d"), disk.list("")) == (["f"], ["d", "top"])


def test_replace_does_not_trip_over_what_a_crashed_one_left(disk: Disk) -> None:
    disk.create("f" + disk_module.TEMPORARY_SUFFIX).append([b"left over and longer"])
    disk.replace("f", b"new")
    assert (disk.list(""), content(disk, "f")) == (["f"], b"new")


def test_a_reader_keeps_the_replaced_file(disk: Disk) -> None:
    disk.replace("f", b"old")
    reader = disk.open("f")
    disk.replace("f", b"new")
    assert (reader.read(0, 9), content(disk, "f")) == (b"old", b"new")


def test_sync_dir_of_a_missing_directory_fails(disk: Disk) -> None:
    disk.make_dir("d")
    disk.sync_dir("")
    disk.sync_dir("d")
    with pytest.raises(FileNotFoundError):
        disk.sync_dir("missing")


@pytest.mark.parametrize("count", [0, 1, SYNCFS_ABOVE + 1])
def test_sync_files_leaves_the_content(disk: Disk, count: int) -> None:
    files = [disk.create(f"f{n}") for n in range(count)]
    for number, file in enumerate(files):
        file.append([b"%d" % number])
    disk.sync_files(files)
    assert [file.read(0, 9) for file in files] == [b"%d" % n for n in range(count)]


def test_free_bytes_is_some(disk: Disk) -> None:
    assert disk.free_bytes() > 0


_NAMES = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a", "d", "d/e", "x/y"])
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["create", "remove", "remove_tree", "make_dir", "list", "sync_dir"]), _NAMES),
        st.tuples(st.just("append"), _NAMES, st.integers(0, 9000), st.integers(1, 255)),
        st.tuples(st.just("truncate"), _NAMES, st.integers(0, 9000)),
        st.tuples(st.just("read"), _NAMES, st.integers(0, 9000), st.integers(0, 9000)),
        st.tuples(st.just("rename"), _NAMES, _NAMES),
        st.tuples(st.just("replace"), _NAMES, st.integers(0, 5000)),
    ),
    max_size=25,
)


def _take_step(disk: Disk, step: tuple[Any, ...]) -> object:
    kind, name, *rest = step
    try:
        if kind in ("append", "truncate", "read"):
            if disk.exists(name) and disk.list(name.rpartition("/")[0]) and _is_directory(disk, name):
                return "directory"
            file = disk.open(name, write=kind != "read")
            if kind == "append":
                return file.append([bytes([rest[1]]) * rest[0]])
            if kind == "truncate":
                file.truncate(rest[0])
                return file.size()
            return file.read(*rest)
        if kind == "replace":
            disk.replace(name, b"r" * rest[0])
            return disk.list("")
        answer = getattr(disk, kind)(name, *rest)
        return answer if kind == "list" else None
    except OSError as error:
        return type(error)


def _is_directory(disk: Disk, name: str) -> bool:
    try:
        disk.list(name)
    except NotADirectoryError:
        return False
    return True


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(steps=_STEPS)
def test_both_disks_answer_alike_to_any_steps(tmp_path_factory: pytest.TempPathFactory, steps: list[Any]) -> None:
    real = RealDisk(tmp_path_factory.mktemp("disk"))
    sim = SimDisk(Random(1))
    for step in steps:
        assert _take_step(real, step) == _take_step(sim, step), step


class TestRealDisk:
    def test_makes_its_root(self, tmp_path: Path) -> None:
        RealDisk(tmp_path / "a" / "b").create("f").append([b"x"])
        assert (tmp_path / "a" / "b" / "f").read_bytes() == b"x"

    def test_short_writes_are_continued(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = os.writev
        monkeypatch.setattr(os, "writev", lambda fd, parts: whole(fd, [memoryview(b"".join(parts))[:3]]))
        file = RealDisk(tmp_path).create("f")
        assert file.append([b"ab", b"", b"cdefg", b"h"]) == 8
        assert file.append([b"x"] * 3000) == 3000
        assert (tmp_path / "f").read_bytes() == b"abcdefgh" + b"x" * 3000

    def test_a_full_device_fails_with_its_error(self, tmp_path: Path) -> None:
        if not os.path.exists("/dev/full"):
            pytest.skip("no /dev/full here")
        os.symlink("/dev/full", tmp_path / "f")
        with pytest.raises(OSError) as caught:
            RealDisk(tmp_path).open("f", write=True).append([b"x"])
        assert caught.value.errno == errno.ENOSPC

    def test_read_cached_where_the_kernel_cannot_say(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = RealDisk(tmp_path).create("f")
        file.append([b"abc"])
        plain = os.preadv

        def refuse(fd: int, buffers: list[bytearray], offset: int, flags: int = 0) -> int:
            if flags:
                raise OSError(errno.EOPNOTSUPP, "no")
            return plain(fd, buffers, offset)

        monkeypatch.setattr(os, "preadv", refuse)
        assert file.read_cached(1, 9) == b"bc"

    def test_read_cached_does_not_hand_out_the_cached_half(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = RealDisk(tmp_path).create("f")
        file.append([b"x" * 10000])

        def half(fd: int, buffers: list[bytearray], offset: int, flags: int = 0) -> int:
            return 4096

        monkeypatch.setattr(os, "preadv", half)
        assert file.read_cached(0, 10000) is None
        assert file.read_cached(5904, 5000) == bytes(4096)

    def test_a_dropped_file_gives_its_descriptor_back(self, tmp_path: Path) -> None:
        disk = RealDisk(tmp_path)
        fd = disk.create("f").fileno()
        with pytest.raises(OSError):
            os.fstat(fd)

    @pytest.mark.parametrize(("count", "has_syncfs"), [(SYNCFS_ABOVE, True), (SYNCFS_ABOVE + 1, False)])
    def test_few_files_or_an_unknown_file_system_are_synced_one_by_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, has_syncfs: bool
    ) -> None:
        synced, flushed = self._record_syncs(monkeypatch)
        disk = RealDisk(tmp_path)
        disk._has_syncfs = has_syncfs
        files = [disk.create(f"f{n}") for n in range(count)]
        disk.sync_files(files)
        assert (synced, flushed) == ([file.fileno() for file in files], [])

    def test_many_files_are_synced_at_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        synced, flushed = self._record_syncs(monkeypatch)
        disk = RealDisk(tmp_path)
        disk._has_syncfs = True
        disk.sync_files([disk.create(f"f{n}") for n in range(SYNCFS_ABOVE + 1)])
        assert (synced, len(flushed)) == ([], 1)

    def test_a_file_on_another_device_is_not_left_to_syncfs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced, flushed = self._record_syncs(monkeypatch)
        disk = RealDisk(tmp_path)
        disk._has_syncfs = True
        disk._device += 1
        disk.sync_files([disk.create(f"f{n}") for n in range(SYNCFS_ABOVE + 1)])
        assert (len(synced), flushed) == (SYNCFS_ABOVE + 1, [])

    def test_a_failed_syncfs_is_settled_file_by_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(fd: int) -> None:
            raise OSError(errno.EIO, "no")

        disk = RealDisk(tmp_path)
        disk._has_syncfs = True
        files = [disk.create(f"f{n}") for n in range(SYNCFS_ABOVE + 1)]
        synced, flushed = self._record_syncs(monkeypatch)
        monkeypatch.setattr(disk_module, "_syncfs", fail)
        disk.sync_files(files)
        assert len(synced) == len(files)
        monkeypatch.setattr(disk_module, "_syncfs", flushed.append)  # it tells a failure once
        monkeypatch.setattr(disk_module, "_fdatasync", fail)
        with pytest.raises(OSError):
            disk.sync_files(files)
        assert flushed == []

    @staticmethod
    def _record_syncs(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[int]]:
        synced: list[int] = []
        flushed: list[int] = []
        monkeypatch.setattr(disk_module, "_fdatasync", synced.append)
        monkeypatch.setattr(disk_module, "_syncfs", flushed.append)
        return synced, flushed


class TestDurableDirectories:
    """After a power loss a name is there if its directory was synced behind it."""

    @pytest.fixture
    def synced(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        synced: list[str] = []
        monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
        return synced

    def test_the_directory_of_a_lock_has_a_durable_name(self, tmp_path: Path, synced: list[str]) -> None:
        lock(tmp_path / "broker" / "data").close()
        assert synced[-2:] == [str(tmp_path), str(tmp_path / "broker")]

    @pytest.mark.parametrize("owner", [RealDisk, lock])
    def test_also_if_a_killed_process_made_it(
        self, tmp_path: Path, synced: list[str], owner: Callable[[Path], object]
    ) -> None:
        (tmp_path / "data").mkdir()
        owner(tmp_path / "data")
        assert synced == [str(tmp_path)]


class TestLock:
    def test_the_second_owner_is_refused_by_a_sentence(self, tmp_path: Path) -> None:
        held = lock(tmp_path / "data", 0)
        with pytest.raises(Locked) as caught:
            lock(tmp_path / "data", 0.05)
        assert str(tmp_path / "data") in str(caught.value)
        assert str(os.getpid()) in str(caught.value)
        held.close()
        lock(tmp_path / "data", 0).close()

    def test_several_are_owned_or_none(self, tmp_path: Path) -> None:
        first, second = str(tmp_path / "a"), str(tmp_path / "b")
        held = lock_all([first, second])
        for path in (first, second):
            with pytest.raises(Locked):
                lock(path)
        held[0].close()
        with pytest.raises(Locked):
            lock_all([first, second])
        lock(first).close()
        held[1].close()

    def test_one_that_is_named_twice_is_locked_once(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path)
        (held,) = lock_all([str(tmp_path), f"{tmp_path}/", str(tmp_path / "link")])
        held.close()

    def test_a_child_that_outlives_the_owner_keeps_the_lock(self, tmp_path: Path) -> None:
        held = lock(tmp_path, 0)
        program = "import sys; sys.stdin.read()"
        child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, pass_fds=[held.fd])
        try:
            held.close()
            with pytest.raises(Locked):
                lock(tmp_path, 0)
        finally:
            assert child.stdin is not None
            child.stdin.close()
            child.wait(60)
        lock(tmp_path, 10).close()

    def test_a_waiting_owner_gets_the_lock_when_the_other_dies(self, tmp_path: Path) -> None:
        program = (
            "import sys; from cairnmq.storage.files.disk import lock; held = lock(sys.argv[1], 0);"
            "print('held', flush=True); sys.stdin.read()"
        )
        command = [sys.executable, "-c", program, str(tmp_path)]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"held\n"
            with pytest.raises(Locked):
                lock(tmp_path, 0)
        finally:
            child.kill()
        lock(tmp_path, 10).close()
        child.communicate()


def test_a_file_knows_when_it_was_written(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    before = time.time_ns() // 1_000_000
    file = disk.create("a")
    file.append([b"x"])
    assert before - 1000 <= file.modified_ms() <= time.time_ns() // 1_000_000 + 1000
    os.utime(tmp_path / "a", (5, 5))
    assert disk.open("a").modified_ms() == 5000
