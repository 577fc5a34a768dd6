"""verify's comparison of a journal's replicas: byte for byte the same below what all of them know to be replicated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from cairnmq.errors import Corrupt
from cairnmq.storage.check.finding import Finding
from cairnmq.storage.check.replica import Replica, names, odd_ones
from cairnmq.storage.files.format import journal_segment
from cairnmq.storage.journal.journal import JournalReader

PIECE_BYTES = 1 << 20


def compare_journals(number: int, replicas: Sequence[Replica]) -> Iterator[Finding]:
    """Of replicas that all host it. One that differs once is left out from there on; one that is short is damaged, and
    its own check says so."""
    limit = common_end(number, replicas)
    left = [replica for replica in replicas if replica.journals[number].bases]
    position = first_base(number, replicas)
    while position < limit:
        here = [replica for replica in left if _holds(replica.journals[number], position)]
        following = min([limit, position + PIECE_BYTES, *_bounds(left, number, position)])
        pieces = [_read(replica.journals[number], position, following - position) for replica in here]
        size = min(map(len, pieces), default=0)
        most, odd = odd_ones([piece[:size] for piece in pieces])
        for at in odd:
            where = position + _first_difference(pieces[at][:size], pieces[most[0]][:size])
            text = f"differs from {names(here, most)} at journal position {where}, below the replicated end {limit}"
            yield Finding(_file(here[at], number, where), text)
        wanting = [at for at, piece in enumerate(pieces) if len(piece) < following - position]
        gone = [here[at].root for at in (*odd, *wanting)]
        left = [replica for replica in left if replica.root not in gone]
        position = following


def common_end(number: int, replicas: Sequence[Replica]) -> int:
    """Up to here all of them must be equal."""
    return min(replica.replicated_end(number) for replica in replicas)


def first_base(number: int, replicas: Sequence[Replica]) -> int:
    """The first position that one of them still has; the common end if none has any."""
    bases = [replica.journals[number].bases[0] for replica in replicas if replica.journals[number].bases]
    return min(bases, default=common_end(number, replicas))


def _holds(reader: JournalReader, position: int) -> bool:
    return reader.bases[0] <= position < reader.end()


def _bounds(replicas: Sequence[Replica], number: int, position: int) -> Iterator[int]:
    """Positions behind this one where a replica begins or ends."""
    for reader in (replica.journals[number] for replica in replicas):
        yield from (bound for bound in (reader.bases[0], reader.end()) if bound > position)


def _file(replica: Replica, number: int, position: int) -> str:
    base = max(base for base in replica.journals[number].bases if base <= position)
    return f"{replica.journal_root}/{journal_segment(number, base)}"


def _read(reader: JournalReader, position: int, size: int) -> bytes:
    """Across segments; short where there is nothing."""
    found = b""
    with suppress(Corrupt, OSError):
        while len(found) < size:
            view, _ = reader.read(position + len(found), size - len(found))
            if not view:
                break
            found += view
    return found


def _first_difference(one: bytes, other: bytes) -> int:
    """Where two byte strings of one length that are not equal begin to differ."""
    low, high = 0, len(one)  # equal before `low`; not equal before `high`
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low
