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
    limit = min(replica.replicated_end(number) for replica in replicas)
    held = [(replica, replica.journals[number]) for replica in replicas if replica.journals[number].bases]
    position = min((reader.bases[0] for _, reader in held), default=limit)
    while position < limit:
        here = [(replica, reader) for replica, reader in held if reader.bases[0] <= position < reader.end()]
        bounds = [bound for _, reader in held for bound in (reader.bases[0], reader.end()) if bound > position]
        following = min([limit, position + PIECE_BYTES, *bounds])
        pieces = [_read(reader, position, following - position) for _, reader in here]
        for short in [at for at, piece in enumerate(pieces) if len(piece) < following - position]:
            held = [one for one in held if one[0] is not here[short][0]]
        size = min(map(len, pieces), default=0)
        most, odd = odd_ones([piece[:size] for piece in pieces])
        for at in odd:
            replica, reader = here[at]
            where = position + _first_difference(pieces[at][:size], pieces[most[0]][:size])
            base = max(base for base in reader.bases if base <= where)
            others = names([replica for replica, _ in here], most)
            file = f"{replica.journal_root}/{journal_segment(number, base)}"
            yield Finding(file, f"differs from {others} at journal position {where}, below the replicated end {limit}")
            held = [one for one in held if one[0] is not replica]
        position = following


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
