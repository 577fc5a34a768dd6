"""Keys and transactions as ZooKeeper's nodes: where a key lies, what a node contains, what a change writes. Pure.

Below the root path: `rev`, one node that every transaction changes; `keys/DIRECTORY/NAME`, a node for each key;
`sessions/NAME`, an ephemeral node for each session.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cairnmq.errors import Corrupt, Fault, TooNew
from cairnmq.metadata.expectations import agreed
from cairnmq.metadata.keys import level, unlevel
from cairnmq.metadata.store import ABSENT, Change, Compacted, Conflict, Delete, Entry, NextEpoch, Op, Put
from cairnmq.types import Epoch

FORMAT = 1
HISTORY = 64
"""Changes that `rev` remembers."""
WRITERS = 64
"""Processes whose last transaction `rev` remembers."""
HISTORY_KEYS = 1024
"""A change of more keys is no history: whoever watches lists everything."""
BYTES_MAX = 900_000
"""Of one transaction; ZooKeeper refuses requests of 1 MiB."""

REV = "rev"
KEYS = "keys"
SESSIONS = "sessions"
TOP = "(top)"
"""The directory of keys without one; no directory's name has brackets."""
BUCKETED = {"topics", "group-configs", "quotas"}
"""Directories of many keys. ZooKeeper sends the names of a directory in one response of at most 1 MiB."""
BUCKETS = 256


class Held(Struct, frozen=True, array_like=True):
    """A key of a session."""

    revision: int
    session: str


class Written(Struct, frozen=True, array_like=True):
    """The last transaction of a process: its own number for it, and the revision and epoch that it led to."""

    number: int
    revision: int
    epoch: int


class Changed(Struct, frozen=True, array_like=True):
    """The keys of one revision."""

    revision: int
    keys: list[str]


class Root(Struct, frozen=True):
    """What `rev` contains. Values are replaced, never changed."""

    format: int = FORMAT
    revision: int = 0
    epoch: int = 0
    compacted: int = 0  # changes up to this revision are forgotten
    held: dict[str, Held] = {}
    writers: dict[str, Written] = {}  # by recency
    changes: list[Changed] = []

    def dead(self, live: Collection[str]) -> list[str]:
        """Keys whose sessions have ended."""
        return sorted(key for key, held in self.held.items() if held.session not in live)

    def changed(self, after: int) -> dict[str, int] | Compacted:
        """Keys that changed after a revision, with that of the last change."""
        if after < self.compacted:
            return Compacted(self.compacted)
        return {key: each.revision for each in self.changes if each.revision > after for key in each.keys}


class Write(Struct, frozen=True):
    """Of one node. `data` None: remove it. `exists`: it is there."""

    key: str
    data: bytes | None
    exists: bool


class Plan(Struct, frozen=True):
    """A transaction. `needs`: sessions without which it must not go through. `same`: nothing is to be written."""

    root: Root
    writes: tuple[Write, ...] = ()
    needs: frozenset[str] = frozenset()
    same: bool = False

    @property
    def size(self) -> int:
        return sum(len(each.data or b"") + 2 * len(each.key) for each in self.writes)


class Found(Struct, frozen=True):
    """What was read for a transaction. `nodes`: revisions of the keys that it names, those of dead sessions too."""

    root: Root
    live: frozenset[str]
    nodes: Mapping[str, int]

    def revision(self, key: str) -> int:
        """ABSENT if its session has ended."""
        held = self.root.held.get(key)
        return ABSENT if held is not None and held.session not in self.live else self.nodes.get(key, ABSENT)


def plan(found: Found, ops: Sequence[Op | NextEpoch], hold: tuple[str, str] | None = None) -> Plan | Conflict:
    """All operations, or what is in their way. `hold`: a key, and the session that it is to belong to. Keys of sessions
    that have ended are removed before."""
    there = agreed(ops, found.revision, lambda: found.root.epoch)
    if isinstance(there, Conflict):
        return there
    keyed, epoch = there
    return replace_epoch(_written(found, keyed, hold), found.root.epoch if epoch is None else epoch)


def replace_epoch(made: Plan, epoch: int) -> Plan:
    """The same transaction, which also gives out this epoch."""
    if epoch == made.root.epoch:
        return made
    return replace(made, root=replace(made.root, epoch=epoch), same=False)


def _written(found: Found, ops: Sequence[Op], hold: tuple[str, str] | None) -> Plan:
    writes = {key: Write(key, None, True) for key in found.root.dead(found.live)}
    before = bool(writes)
    root = _after(found.root, list(writes), {})
    puts = {op.key: op for op in ops if isinstance(op, Put)}
    gone = [op.key for op in ops if isinstance(op, Delete) and found.revision(op.key) != ABSENT]
    held = _sessions(root, puts) | dict([hold] if hold is not None else [])
    needs = frozenset([*held.values(), *_sessions(root, [op.key for op in ops if op.expect]).values()])
    if not puts and not gone:
        return Plan(root, tuple(writes.values()), needs, same=not before)
    revision = root.revision + 1
    root = _after(root, [*puts, *gone], {key: Held(revision, session) for key, session in held.items()})
    for key, op in puts.items():
        writes[key] = Write(key, encode_node(op.value, revision, held.get(key, "")), key in found.nodes)
    writes |= {key: Write(key, None, True) for key in gone}
    return Plan(root, tuple(writes.values()), needs)


def _sessions(root: Root, keys: Iterable[str]) -> dict[str, str]:
    """Of those keys that have one."""
    return {key: root.held[key].session for key in keys if key in root.held}


def _after(root: Root, keys: list[str], held: Mapping[str, Held]) -> Root:
    """One revision later, if any key changes. Those that have no session any more lose it."""
    if not keys:
        return root
    revision = root.revision + 1
    changes, compacted = [*root.changes, Changed(revision, sorted(keys))], root.compacted
    if len(keys) > HISTORY_KEYS:
        changes, compacted = [], revision
    while len(changes) > HISTORY:
        compacted = changes.pop(0).revision
    kept = {key: each for key, each in root.held.items() if key not in keys}
    return replace(root, revision=revision, changes=changes, compacted=compacted, held={**kept, **held})


def signed(root: Root, writer: str, number: int) -> Root:
    """With the name of the transaction that led to it. The writers that have not written for longest are forgotten."""
    writers = {name: each for name, each in root.writers.items() if name != writer}
    writers[writer] = Written(number, root.revision, root.epoch)
    return replace(root, writers=dict(list(writers.items())[-WRITERS:]))


def news(changed: Mapping[str, int], entries: Mapping[str, Entry]) -> list[Change]:
    """What a watch tells, in order."""
    changes = [
        Change(key, entries[key].value, entries[key].revision) if key in entries else Change(key, None, revision)
        for key, revision in changed.items()
    ]
    return sorted(changes, key=lambda change: (change.revision, change.key))


# -- nodes


def encode_root(root: Root) -> bytes:
    return msgspec.json.encode(root)


def decode_root(data: bytes) -> Root:
    """TooNew if a later version wrote it."""
    try:
        kept = msgspec.json.decode(data, type=_Format).format
        if kept > FORMAT:
            raise TooNew(f"the metadata in ZooKeeper have format {kept}; this version knows {FORMAT}")
        return msgspec.json.decode(data, type=Root)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"ZooKeeper: node {REV} cannot be read: {error}") from error


class _Format(Struct):
    format: int


def encode_node(value: bytes, revision: int, session: str) -> bytes:
    """A line with revision and session before the value."""
    return f"{revision} {session}\n".encode() + value


def decode_node(key: str, data: bytes) -> tuple[Entry, str]:
    """With the session that it belongs to, if any."""
    head, newline, value = data.partition(b"\n")
    revision, space, session = head.partition(b" ")
    if not newline or not space or not revision.isdigit():
        raise Corrupt(f"ZooKeeper: the node of key {key} was not written by CairnMQ")
    return Entry(key, value, int(revision)), session.decode()


# -- paths, below the root


def directory_of(key: str) -> str:
    """Where the node of a key lies."""
    directory, _, name = key.rpartition("/")
    return _bucket(directory, name) if directory in BUCKETED else _place(directory)


def path_of(key: str) -> str:
    """The node of a key."""
    return f"{directory_of(key)}/{level(key.rpartition('/')[2])}"


def prefix_places(prefix: str) -> tuple[str, bool]:
    """The directory of all keys directly below a prefix, and whether their nodes lie in buckets below it."""
    assert prefix.endswith("/"), prefix
    return _place(prefix[:-1]), prefix[:-1] in BUCKETED


def key_of(prefix: str, name: str) -> str:
    """The key of a node, by its name and the prefix of its directory."""
    return prefix + unlevel(name)


def session_path(name: str) -> str:
    return f"{SESSIONS}/{name}"


def checked(made: Plan) -> Plan:
    """Fault when ZooKeeper would not take it."""
    if made.size > BYTES_MAX:
        raise Fault(f"a change of {made.size:,} bytes is more than ZooKeeper takes at once, {BYTES_MAX:,} bytes")
    return made


def _place(directory: str) -> str:
    return f"{KEYS}/{level(directory) if directory else TOP}"


def _bucket(directory: str, name: str) -> str:
    return f"{_place(directory)}/{zlib.crc32(name.encode()) % BUCKETS:02x}"


def named(ops: Iterable[Op | NextEpoch]) -> list[str]:
    """The keys that must be read for a transaction."""
    return [op.key for op in ops if not isinstance(op, NextEpoch)]


def next_epoch(root: Root, above: int) -> Epoch:
    return Epoch(max(root.epoch, above) + 1)
