"""One damage in one file of a data directory: a flipped bit, a cut, a zeroed page, a lost file, the `queue.json` of
another queue; chosen by a seed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from cairnmq.storage.files.format import ENTRY_SIZE, IDENTITY_FILE

PAGE_BYTES = 4096
LOCK = "lock"
BIT, CUT, ZEROES, GONE, MISPLACED = WAYS = ("bit flipped", "cut", "page zeroed", "gone", "another's in its place")
WAY_WEIGHTS = (4, 3, 2, 1)  # of the last one: see `choose`
SUFFIXES = {
    ".jnl": "journal",
    ".log": "segment",
    ".pack": "pack",
    ".index": "index",
    ".timeindex": "timeindex",
    ".txnindex": "txnindex",
    ".ckpt": "checkpoint",
    ".previous": "previous",
}
UNFINISHED = (".new", ".tmp", ".cleaned")  # never counts, so damage there must be as nothing
NEXT = "next.new"
WEIGHTS = {
    "journal": 8,
    "segment": 5,
    "pack": 5,
    "checkpoint": 4,
    "meta.db-wal": 4,
    "meta.db": 3,
    "txnindex": 3,
    "owner.json": 2,
    "index": 2,
    "previous": 1,
    "timeindex": 1,
    "queue.json": 2,
    "reserve": 1,
    NEXT: 1,
    "unfinished": 1,
}
WEIGHT_OF_OTHERS = 2
MISPLACED_SHARE = 0.4  # of the damages of `queue.json`, which alone says whose a directory is
KINDS_IN_DOUBT = ("checkpoint", "meta.db", "meta.db-wal", "owner.json")


def kind_of(path: Path) -> str:
    """What the file is called in the table; one without a kind goes by its own name."""
    if path.suffix in UNFINISHED and path.name != NEXT:
        return "unfinished"
    return SUFFIXES.get(path.suffix, path.name)


class Hurt(NamedTuple):
    """`file` is below the root of the world; `at` is a position in it. `source`: the file that was copied over it."""

    file: str
    kind: str
    way: str
    at: int
    bit: int = 0
    source: str = ""

    def __str__(self) -> str:
        if self.way == MISPLACED:
            return f"{self.source} copied over {self.file}"
        where = "" if self.way == GONE else f" at {self.at}" + (f" (bit {self.bit})" if self.way == BIT else "")
        return f"{self.way}{where} in {self.file}" if self.way != GONE else f"{self.file} gone"

    def done_to(self, data: bytes) -> bytes | None:
        """None: the file is gone."""
        changed = bytearray(data)
        if self.way == BIT:
            changed[self.at] ^= 1 << self.bit
        elif self.way == CUT:
            del changed[self.at :]
        elif self.way == ZEROES:
            end = min(self.at + PAGE_BYTES, len(data))
            changed[self.at : end] = bytes(end - self.at)
        else:
            return None
        return bytes(changed)

    def apply(self, root: Path) -> None:
        path = root / self.file
        after = (root / self.source).read_bytes() if self.source else self.done_to(path.read_bytes())
        if after is None:
            path.unlink()
        else:
            path.write_bytes(after)

    @property
    def names(self) -> tuple[str, ...]:
        """Words by which a message may call the file."""
        path = Path(self.file)
        if self.kind == "journal":
            return (path.name, f"journal {path.parent.name}")
        if self.kind in ("segment", "index", "timeindex", "txnindex", "queue.json"):
            return (path.name, path.parent.name)
        if self.kind.startswith("meta.db"):
            return ("meta.db", "metadata")
        return (path.name, self.kind)


def files_of(root: Path) -> dict[str, list[str]]:
    """Files below a directory by kind, but for locks."""
    found: dict[str, list[str]] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.name != LOCK:
            found.setdefault(kind_of(path), []).append(path.relative_to(root).as_posix())
    return found


def choose(root: Path, rng: Random, kind: str | None = None) -> Hurt:
    """A damage that changes something."""
    files = files_of(root)
    kinds = [kind] if kind is not None else sorted(files)
    while True:
        one = rng.choices(kinds, [WEIGHTS.get(each, WEIGHT_OF_OTHERS) for each in kinds])[0]
        file = rng.choice(files[one])
        data = (root / file).read_bytes()
        others = [each for each in files[one] if each != file]
        if one == IDENTITY_FILE and others and rng.random() < MISPLACED_SHARE:
            return Hurt(file, one, MISPLACED, 0, source=rng.choice(others))
        way = rng.choices(WAYS[: len(WAY_WEIGHTS)], WAY_WEIGHTS)[0] if data else GONE
        hurt = Hurt(file, one, way, _position(one, way, data, rng), rng.randrange(8))
        if hurt.done_to(data) != data:
            return hurt


def _position(kind: str, way: str, data: bytes, rng: Random) -> int:
    if way == GONE:
        return 0
    if way == ZEROES:
        return rng.randrange(len(data)) // PAGE_BYTES * PAGE_BYTES
    if way == CUT and kind in BOUNDARIES and rng.random() < 0.4:
        # Nothing torn is left to see there: whoever trusts the end of a file does not notice.
        return rng.choice(BOUNDARIES[kind](data) or [0])
    part = rng.random()
    if part < 0.25:
        return len(data) - 1 - rng.randrange(min(512, len(data)))
    if part < 0.35:
        return rng.randrange(min(128, len(data)))
    return rng.randrange(len(data))


def _runs(head: int, length_at: int, length_bytes: int = 4) -> Callable[[bytes], list[int]]:
    """Where each of the parts begins that follow one another, each with its length in its head."""

    def begins(data: bytes) -> list[int]:
        found, at = [], 0
        while at + head <= len(data):
            found.append(at)
            at += head + int.from_bytes(data[at + length_at : at + length_at + length_bytes], "big")
        return found

    return begins


def _rows(size: int) -> Callable[[bytes], list[int]]:
    return lambda data: list(range(0, len(data), size))


def _wal_frames(data: bytes) -> list[int]:
    return list(range(32, len(data), 24 + int.from_bytes(data[8:12], "big")))


BOUNDARIES: dict[str, Callable[[bytes], list[int]]] = {
    "journal": _runs(ENTRY_SIZE, 4),
    "segment": _runs(12, 8),
    "checkpoint": _runs(12, 4),
    "meta.db-wal": _wal_frames,
    "index": _rows(8),
    "timeindex": _rows(12),
    "txnindex": _rows(34),
    "meta.db": _rows(PAGE_BYTES),
}
