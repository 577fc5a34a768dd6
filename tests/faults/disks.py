"""Disks that fill, fail, wait and go: small file systems of their own, and a library that makes calls fail."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("faulty_disk.c")


class Rules:
    """Which file operations of a broker fail from now on; see faulty_disk.c."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.library = directory / "faulty_disk.so"
        self.path = directory / "rules"
        self.path.touch()
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", self.library, SOURCE, "-ldl"], check=True, timeout=60)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "CAIRN_TEST_FAULTS": str(self.path)}

    def put(self, *lines: str) -> None:
        """In place of all others; none: every disk works."""
        new = self.path.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in lines))
        new.replace(self.path)


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[Path]:
    """A file system of this size at `place`, gone afterwards."""
    place.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "cairn-test", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode != 0:
        reason = f"cannot mount a small file system: {done.stderr.strip()}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    try:
        yield place
    finally:
        # Lazily: a broker that a failed test left behind may still have files open there.
        subprocess.run(["umount", "-l", str(place)], timeout=20, check=True)


def fill(disk: Path) -> Path:
    """Takes all the room there is; delete the file to give it back."""
    junk = disk / "junk"
    with junk.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096):
            try:
                while file.write(bytes(size)):
                    continue
            except OSError as error:
                assert error.errno == errno.ENOSPC
    return junk
