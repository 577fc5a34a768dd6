"""verify's part for packs: every extent against its checksum, every queue's offsets against the checkpoint's rows."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from cairnmq.codec.batch import CRC_START, HEADER_SIZE, read_header
from cairnmq.codec.crc32c import crc32c
from cairnmq.errors import Corrupt
from cairnmq.os_errors import reason_of
from cairnmq.storage.check.aborted_check import compare_aborted
from cairnmq.storage.check.finding import Finding, note
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.format import NO_SEGMENTS, PACK_SUFFIX, PACKS, Extent, QueueRow, digits, numbered
from cairnmq.storage.packs.pack import PackReader
from cairnmq.storage.packs.pack_set import merged
from cairnmq.storage.queue.state import QueueState


def check_packs(
    disk: Disk, image: CheckpointImage, queues: Mapping[int, object] | None, root: str, kept: Container[int] = ()
) -> Iterator[Finding]:
    """`queues`: what the metadata says exists; None when it is not at hand. `kept`: packs that the checkpoint does not
    name, and that no start removes all the same."""
    for name in disk.list(PACKS):
        numbers = numbered([name], PACK_SUFFIX)
        if not numbers or (numbers[0] not in image.packs and numbers[0] not in kept):
            yield note(f"{root}/{PACKS}/{name}", "is newer than the checkpoint, or replaced; the next start removes it")
    packs: list[PackReader] = []
    lost = False
    for number in image.packs:
        try:
            packs.append(PackReader.open(disk, number))
        except (Corrupt, OSError) as error:
            lost = True
            text = reason_of(error) if isinstance(error, OSError) else str(error)
            yield Finding(f"{root}/{PACKS}/{digits(number, PACK_SUFFIX)}", text)
    met: set[int] = set()
    for queue_id, extents in merged(packs):
        row = image.queues.get(queue_id)
        if row is None or (queues is not None and queue_id not in queues) or row.log_start >= row.packed_end:
            continue  # a merge leaves it behind
        met.add(queue_id)
        next_offset = first_offset = -1
        state = QueueState()
        for pack, extent in extents:
            if extent.end_offset <= row.log_start or extent.base_offset >= row.packed_end:
                continue  # segments have it, and nobody reads it here
            name = f"{root}/{pack.name}"
            if next_offset < 0:
                next_offset = min(extent.base_offset, row.log_start)
                first_offset = extent.base_offset
            if extent.base_offset != next_offset and not lost:
                text = f"continues at offset {extent.base_offset} instead of {next_offset}"
                yield Finding(name, f"queue {queue_id} {text}")
            next_offset = extent.end_offset
            yield from _extent(pack, extent, row, name, state)
        end = row.packed_end
        if not lost:
            replayed = [aborted for aborted in state.aborted if aborted.last >= row.log_start]
            for text in compare_aborted(row.aborted, replayed, max(first_offset, row.compaction.rewritten_end)):
                yield Finding(f"{root}/{PACKS}", f"queue {queue_id}: {text}")
        if not lost and next_offset not in (-1, end) and (row.segments_from == NO_SEGMENTS or next_offset < end):
            yield Finding(f"{root}/{PACKS}", f"queue {queue_id} ends at offset {next_offset}, not at {end}")
        if next_offset == -1:
            met.discard(queue_id)
    for row in image.queues.values():
        wanted = row.log_start < row.packed_end and (queues is None or row.queue_id in queues)
        if wanted and row.queue_id not in met and not lost:
            text = f"no pack holds queue {row.queue_id}: offsets {row.log_start} to {row.packed_end} are missing"
            yield Finding(f"{root}/{PACKS}", text)
    for pack in packs:
        pack.close()


def _extent(pack: PackReader, extent: Extent, row: QueueRow, name: str, state: QueueState) -> Iterator[Finding]:
    try:
        data = memoryview(pack.data(extent))
    except Corrupt as error:
        yield Finding(name, str(error))
        return
    at, count, offset, newest = 0, 0, extent.base_offset, -1
    while len(data) - at >= HEADER_SIZE:
        header = read_header(data, at)
        batch = data[at : at + header.size]
        known = [epoch for epoch, start in row.epochs if start <= header.base_offset]
        if header.size < HEADER_SIZE or crc32c(batch[CRC_START:]) != header.crc or header.base_offset != offset:
            break
        if offset >= row.log_start and (not known or known[-1] != header.leader_epoch):
            text = f"the batch at {extent.position + at} has leader epoch {header.leader_epoch}"
            yield Finding(name, f"{text}, the checkpoint says {known[-1] if known else 'none'}")
        state.apply_batch(batch, 0)
        at, count, offset = at + header.size, count + 1, header.last_offset + 1
        newest = max(newest, header.max_timestamp)
    if (at, count, offset, newest) != (len(data), extent.batches, extent.end_offset, extent.max_timestamp):
        text = f"the extent at {extent.position} does not hold offsets {extent.base_offset} to {extent.end_offset}"
        yield Finding(name, f"{text} of queue {extent.queue_id}, which its table lists")
