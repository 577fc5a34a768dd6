"""One pack: the batches of many queues in one file, sorted by queue and offset, with a table of extents at its end.

A pack is written once, from front to back, and never changed. Its table stays on disk: in memory are every 64th entry
and a checksum, so a queue that rests in packs costs nothing. Layout: docs/format.md.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from cairnmq.codec.crc32c import crc32c
from cairnmq.errors import Corrupt
from cairnmq.storage.files.damage import Damage, Place
from cairnmq.storage.files.disk import Disk, File, Unreadable
from cairnmq.storage.files.format import (
    EXTENT,
    EXTENT_KEY,
    PACK_FOOT_SIZE,
    PACK_HEAD_SIZE,
    PACKS,
    Entry,
    Extent,
    PackLabel,
    pack_end,
    pack_head,
    pack_name,
    read_extents,
    read_pack_foot,
    read_pack_head,
)
from cairnmq.types import Buffer

EXTENT_BYTES = 256 << 10  # a lookup reads the headers of one extent
SPARSE = 64  # extents per entry in memory
BUFFER_BYTES = 4 << 20


class PackWriter:
    """Extents in the order of (queue id, offset); `finish` makes a pack of it, which `sync` then makes durable."""

    def __init__(self, disk: Disk, label: PackLabel, directory: str = PACKS) -> None:
        self.disk = disk
        self.number = label.number
        self.name = pack_name(label.number, directory)
        disk.make_dir(directory)
        disk.remove(self.name)  # what a crash or a failed write left behind
        self._file = disk.create(self.name)
        self._extents: list[Extent] = []
        self._buffers: list[Buffer] = [pack_head(label)]
        self._buffered = 0
        self.position = PACK_HEAD_SIZE

    def add_batches(self, queue_id: int, batches: Sequence[Entry]) -> None:
        """Batches of one queue, as journal entries of them."""
        first, size, newest, crc, count = batches[0].base_offset, 0, -1, 0, 0
        for batch in batches:
            data = batch.payload
            self._buffers.append(data)
            crc = crc32c(data, crc)
            size += len(data)
            count += 1
            if batch.max_timestamp > newest:
                newest = batch.max_timestamp
            if size >= EXTENT_BYTES:
                self._close(queue_id, first, batch.last_offset + 1, newest, size, count, crc)
                first, size, newest, crc, count = batch.last_offset + 1, 0, -1, 0, 0
        if count:
            self._close(queue_id, first, batches[-1].last_offset + 1, newest, size, count, crc)
        if self._buffered >= BUFFER_BYTES:
            self._flush()

    def add_extent(self, extent: Extent, data: bytes) -> None:
        """An extent of another pack. It joins the one before it, if that is the same queue's and there is room."""
        last = self._extents[-1] if self._extents else None
        self._buffers.append(data)
        if (
            last is not None
            and last.queue_id == extent.queue_id
            and last.end_offset == extent.base_offset
            and last.size + extent.size <= EXTENT_BYTES
        ):
            self._extents[-1] = Extent(
                last.queue_id,
                last.base_offset,
                extent.end_offset,
                max(last.max_timestamp, extent.max_timestamp),
                last.position,
                last.size + extent.size,
                last.batches + extent.batches,
                crc32c(data, last.crc),
            )
            self.position += extent.size
            self._buffered += extent.size
        else:
            self._close(
                extent.queue_id,
                extent.base_offset,
                extent.end_offset,
                extent.max_timestamp,
                extent.size,
                extent.batches,
                extent.crc,
            )
        if self._buffered >= BUFFER_BYTES:
            self._flush()

    def _close(self, queue_id: int, base: int, end: int, newest: int, size: int, count: int, crc: int) -> None:
        self._extents.append(Extent(queue_id, base, end, newest, self.position, size, count, crc))
        self.position += size
        self._buffered += size

    def _flush(self) -> None:
        self._file.append(self._buffers)
        self._buffers, self._buffered = [], 0

    def finish(self) -> None:
        self._buffers.extend(pack_end(self.position, self._extents))
        self._flush()

    @property
    def file(self) -> File:
        return self._file

    def abandon(self) -> None:
        self._file.close()
        self.disk.remove(self.name)


def read_label(disk: Disk, number: int) -> PackLabel | None:
    """Of a pack that may not be finished; None: it has no head that can be read."""
    try:
        file = disk.open(pack_name(number))
    except FileNotFoundError:
        return None
    try:
        return read_pack_head(file.read(0, PACK_HEAD_SIZE), number, file.name)
    except (Corrupt, Unreadable):
        return None
    finally:
        file.close()


class PackReader:
    """Lookups in a finished pack. Any thread; reads block unless `cached`, then None means: it would have."""

    def __init__(self, file: File, number: int) -> None:
        self.number = number
        self.name = file.name
        self.file = file
        self.size = self.file.size()
        head = self.file.read(0, PACK_HEAD_SIZE)
        foot = self.file.read(max(0, self.size - PACK_FOOT_SIZE), PACK_FOOT_SIZE)
        self.label = read_pack_head(head, number, self.name)
        self.table, self.count, self._table_crc = read_pack_foot(foot, self.size, self.name)
        self._queues = array("Q")  # of every SPARSE-th extent
        self._offsets = array("q")
        self._crcs = array("I")  # of the table from each of them to the next: a row says whose records an extent holds
        # the part of the table looked at last, and its keys: a fetch asks for one queue after the other
        self._block: tuple[int, bytes, list[bytes]] = (-1, b"", [])
        crc = 0
        for block in self._blocks():
            crc = crc32c(block, crc)
            for at in range(0, len(block), SPARSE * EXTENT.size):
                fields = EXTENT.unpack_from(block, at)
                self._queues.append(fields[0])
                self._offsets.append(fields[1])
                self._crcs.append(crc32c(block[at : at + SPARSE * EXTENT.size]))
        if crc != self._table_crc:
            raise Corrupt(f"{self.name} is damaged: its table of extents does not match its checksum")

    @classmethod
    def open(cls, disk: Disk, number: int) -> PackReader:
        return cls(disk.open(pack_name(number)), number)

    def _blocks(self) -> Iterator[bytes]:
        step = SPARSE * EXTENT.size * 32
        end = self.table + self.count * EXTENT.size
        for at in range(self.table, end, step):
            yield self.file.read(at, min(step, end - at))

    def __iter__(self) -> Iterator[Extent]:
        first = 0
        for block in self._blocks():
            for at in range(0, len(block), SPARSE * EXTENT.size):
                yield from read_extents(self._checked(first, block[at : at + SPARSE * EXTENT.size]))
                first += 1

    def check_table(self) -> None:
        """Damage, if it is not any more what it was when the pack was opened."""
        for _ in self:
            pass

    def _checked(self, index: int, rows: bytes) -> bytes:
        if crc32c(rows) != self._crcs[index]:
            place = Place(self.name, self.table + index * SPARSE * EXTENT.size)
            raise Damage(place, "its table of extents does not match its checksum")
        return rows

    def _rows(self, index: int, *, cached: bool = False) -> bytes | None:
        """The part of the table that begins with a sparse entry; None, only if `cached`: it would wait."""
        at = self.table + index * SPARSE * EXTENT.size
        size = min(SPARSE * EXTENT.size, self.table + self.count * EXTENT.size - at)
        rows = self.file.read_cached(at, size) if cached else self.file.read(at, size)
        return self._checked(index, bytes(rows)) if rows is not None else None

    def find(self, queue_id: int, offset: int, *, cached: bool = False) -> Extent | bool:
        """The extent that holds `offset`; False if this pack has none, True if finding out would wait for the disk."""
        index = self._slot(queue_id, offset)
        if index < 0:
            return False
        held, block, keys = self._block
        if held != index:
            read = self._rows(index, cached=cached)
            if read is None:
                return True
            # rows begin with queue id and first offset, so their bytes are in the order of the rows
            block, keys = read, [read[at : at + EXTENT_KEY.size] for at in range(0, len(read), EXTENT.size)]
            self._block = index, block, keys
        place = bisect_right(keys, EXTENT_KEY.pack(queue_id, offset))
        if not place:
            return False
        extent = Extent(*EXTENT.unpack_from(block, (place - 1) * EXTENT.size))
        return extent if extent.queue_id == queue_id and offset < extent.end_offset else False

    def _slot(self, queue_id: int, offset: int) -> int:
        """The last sparse entry at or before (queue id, offset); -1 if that lies before the first extent."""
        queues = self._queues
        high = bisect_right(queues, queue_id)
        low = high
        while low and queues[low - 1] == queue_id and self._offsets[low - 1] > offset:
            low -= 1
        return low - 1

    def of_queue(self, queue_id: int) -> list[Extent]:
        """All extents of a queue, in offset order."""
        found: list[Extent] = []
        first = max(0, bisect_right(self._queues, queue_id - 1) - 1)
        for index in range(first, len(self._queues)):
            rows = self._rows(index)
            assert rows is not None
            for extent in read_extents(rows):
                if extent.queue_id > queue_id:
                    return found
                if extent.queue_id == queue_id:
                    found.append(extent)
        return found

    def data(self, extent: Extent) -> bytes:
        """The bytes of an extent, checked."""
        data = self.file.read(extent.position, extent.size)
        if len(data) != extent.size or crc32c(data) != extent.crc:
            del data  # what is raised here must not hold it
            raise Damage(
                Place(self.name, extent.position, str(extent.queue_id), extent.base_offset, extent.end_offset),
                "wrong checksum of the extent",
            )
        return data

    def close(self) -> None:
        self.file.close()
