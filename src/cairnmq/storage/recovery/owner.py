"""Whose journals these are: `owner.json` in a directory of journals names the cluster that writes them, the format of
the directories, and the witness (witness.py).

A broker that starts beside the wrong --journal-dir would take the journals of another one for its own torn tail and
cut them. So the name is written at the first start and compared at every other.
"""

from __future__ import annotations

import logging

import msgspec
from msgspec import Struct

from cairnmq.errors import Corrupt, Lost, TooNew
from cairnmq.os_errors import text_of
from cairnmq.settings.broker_table import JOURNALS_MAX
from cairnmq.storage.files import sealed_json
from cairnmq.storage.files.disk import Disk, Unreadable
from cairnmq.storage.files.format import CHECKPOINT_SUFFIX, CHECKPOINTS, FORMAT, numbered
from cairnmq.storage.journal.directories import find_journals, leaders
from cairnmq.storage.journal.replica_note import replica_name
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.types import Counters

log = logging.getLogger(__name__)

OWNER_FILE = "owner.json"


class Owner(Struct, frozen=True):
    """Content of `owner.json`. Later versions append fields, with defaults; what they must not miss raises `format`."""

    cluster_id: str
    format: int = 1
    witness: Counters = Counters()
    journals: tuple[int, ...] = ()  # values that `cairn.journals` has had while it alone said where queues are
    placed: bool = False  # topics have always said it
    nodes: tuple[int, ...] = ()  # node ids under which these journals were led
    slots_from: int = 0  # first queue id of the slots that facts of coordinators bear; 0: there are facts without
    directory: str = ""  # a random name: another directory under the same node id is not the same replica
    in_cluster: bool = False  # the metadata are shared by the brokers of a cluster, and lie elsewhere


def read_owner(disk: Disk) -> Owner | None:
    """None if there is none, or a damaged one: what journals and checkpoint say decides then. Raises TooNew."""
    if not disk.exists(OWNER_FILE):
        return None
    file = disk.open(OWNER_FILE)
    try:
        data = bytes(file.read(0, file.size()))
    except Unreadable:
        return None
    finally:
        file.close()
    is_sealed = sealed_json.is_sealed(data)
    if is_sealed and not sealed_json.holds(data):
        return None
    try:
        owner = msgspec.json.decode(data, type=Owner)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if not is_sealed:
        return Owner(owner.cluster_id)  # as the first versions wrote it: nothing else in it can be checked
    if owner.format > FORMAT:
        raise TooNew(
            f"{OWNER_FILE} of the journals says that a newer version of CairnMQ wrote these directories: their format "
            f"is {owner.format}, this version knows {FORMAT}. Start the newer version, or restore a backup that this "
            f"one wrote; nothing was changed."
        )
    return owner


def is_replica(journal_disk: Disk) -> bool:
    """Whether these journals are those of a broker in a cluster: its metadata lie elsewhere."""
    owner = read_owner(journal_disk)
    if owner is not None and owner.in_cluster:
        return True
    return any(journal_disk.exists(replica_name(number)) for number in find_journals(journal_disk, ()))


class Homes:
    """In which journals entries of a queue may be: in the one that its topic says; and where topics did not always say
    it, in those that have the rest of its id for a number of journals that there has been."""

    def __init__(self, disk: Disk) -> None:
        self._counts = journal_counts(disk)

    def may_hold(self, journal: int, spec: QueueSpec) -> bool:
        return spec.journal == journal or any(spec.queue_id % count == journal for count in self._counts)


def journal_counts(disk: Disk) -> set[int]:
    """Over how many journals queues may have been spread by their ids, by versions that had topics without cycles."""
    owner = read_owner(disk)
    if owner is not None and (owner.placed or owner.journals):
        return set(owner.journals)
    numbers = (number for number in find_journals(disk, ()) if number < JOURNALS_MAX)
    return set(range(1, max(numbers, default=-1) + 2))  # none had more than there are now


def own_nodes(disk: Disk) -> frozenset[int] | None:
    """Node ids whose segments were written here: only their claims of what was synced are about this disk. None: all,
    as far as anybody knows."""
    owner = read_owner(disk)
    return frozenset(owner.nodes) if owner is not None and owner.nodes else None


def write_owner(disk: Disk, owner: Owner) -> None:
    """Durable on return."""
    disk.make_dir("")
    disk.replace(OWNER_FILE, sealed_json.seal(owner))


class OwnerWitness:
    """The witness in `owner.json`, for who may wait for the disk. A copy that lags is weaker, never wrong."""

    def __init__(
        self, disk: Disk, cluster_id: str, node_id: int = 1, new_directory: str = "", *, in_cluster: bool = False
    ) -> None:
        """`new_directory`: the name of a directory that has none yet."""
        found = read_owner(disk)
        self.directory = (found.directory if found is not None else "") or new_directory
        self._disk = disk
        self._cluster_id = cluster_id
        self._in_cluster = in_cluster
        nodes = found.nodes if found is not None else ()
        self._nodes = tuple(sorted({*(nodes or leaders(disk)), node_id}))
        # Until the file names this node, its claims of what is synced would not count.
        self._must_be_named = bool(nodes) and node_id not in nodes
        # Until an upgrade is done, and that of a new directory is done at its first start, it stays what it was.
        self._format = found.format if found is not None else 1
        self._slots_from = found.slots_from if found is not None else 0
        self.kept: Counters | None = None  # what the file says

    def keep(self, counters: Counters) -> None:
        """A disk that is full or failing does not keep the broker from starting: records name their epochs too. Only
        under a node id that is new here it does."""
        if counters == self.kept:
            return
        try:
            counts = tuple(sorted(journal_counts(self._disk)))
            owner = Owner(
                self._cluster_id,
                self._format,
                counters,
                counts,
                placed=not counts,
                nodes=self._nodes,
                slots_from=self._slots_from,
                directory=self.directory,
                in_cluster=self._in_cluster,
            )
            write_owner(self._disk, owner)
            self.kept, self._must_be_named = counters, False
        except OSError as error:
            if self._must_be_named:
                raise
            log.warning("%s could not be written: %s", OWNER_FILE, text_of(error))

    def is_current(self, slots_from: int) -> bool:
        """Whether all files are of this version's format, with facts of coordinators in these slots."""
        return self._format == FORMAT and self._slots_from == slots_from

    def upgraded(self, slots_from: int, counters: Counters) -> None:
        """Now they are: an older version refuses to start from here on."""
        self._format, self._slots_from, self.kept = FORMAT, slots_from, None
        self.keep(counters)


def check_owner(
    journal_disk: Disk, read_disk: Disk, cluster_id: str, *, where: str, has_topics: bool, accept_loss: bool
) -> None:
    """Raises if these journals are not this cluster's or its own are missing. Changes nothing. `cluster_id`: empty if
    the metadata are new."""
    found = read_owner(journal_disk)
    if found is not None and cluster_id in ("", found.cluster_id):
        return
    if found is not None:  # nobody can accept the loss of what is another one's
        help_ = " --accept-loss does not help: if the right journals are lost, give an empty directory."
        raise Corrupt(
            f"the journals in {where} belong to the cluster {found.cluster_id}, this data directory to {cluster_id}. "
            f"Give the --journal-dir (or --data) that belongs to it; nothing was changed.{help_ if accept_loss else ''}"
        )
    if accept_loss:
        return
    is_empty = not find_journals(journal_disk, ())
    has_checkpoint = bool(numbered(read_disk.list(CHECKPOINTS), CHECKPOINT_SUFFIX))
    if is_empty and has_topics and not has_checkpoint:
        raise Lost(
            f"{where} holds no journals, but this data directory has topics and was never checkpointed: all their "
            f"records are in journals elsewhere. Is a disk not mounted, or --journal-dir another one? Nothing was "
            f"changed; `cairn serve --accept-loss` starts without the records."
        )
