"""Each kernel against its pure twin, in microseconds a call: the table of docs/adr/0006-kernels.md."""

from __future__ import annotations

import timeit
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any

from cairnmq import kernels
from cairnmq.codec import batch, columns, row_packing
from cairnmq.codec.records import Record, build_batch, open_batch
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.batches import admission
from cairnmq.storage.journal import entries
from cairnmq.wire import codec
from cairnmq.wire.messages import FetchRequest, FetchResponse, Message, ProduceRequest, ProduceResponse

RUNS, RUN_SECONDS = 80, 0.004
NOW = 1_700_000_000_000
SEED = 77
TOPIC = ("topic", bytes(16))


def compare(what: str, twin: Callable[..., Any], kernel: Callable[..., Any], *arguments: object) -> None:
    """The fastest of many short runs, in turn: whatever else the machine does only ever adds."""
    timers = [timeit.Timer(partial(function, *arguments)) for function in (twin, kernel)]
    fastest = []
    for timer in timers:
        once = min(timer.repeat(3, 10)) / 10
        fastest.append((max(1, int(RUN_SECONDS / once)), once))
    for _ in range(RUNS):
        for number, timer in enumerate(timers):
            count, best = fastest[number]
            fastest[number] = (count, min(best, timer.timeit(count) / count))
    pure, compiled = (best * 1e6 for _, best in fastest)
    print(f"| {what} | {pure:.2f} | {compiled:.2f} | {pure / compiled:.1f} |", flush=True)


def make_batch(records: int, offset: int = 0) -> bytearray:
    values = [Record(0, NOW, None, b"v" * 100) for _ in range(records)]
    data = bytearray(build_batch(values, producer_id=5, producer_epoch=0, base_sequence=0))
    batch.set_offset_and_epoch(data, offset, 1)
    return data


def storage() -> None:
    for records in (1, 150):
        view = memoryview(make_batch(records))
        size = f"a batch of {len(view)} bytes"
        compare(f"`admit`, {size}", admission.admit, kernels.pick(admission.admit), view, LogConfig(), NOW)
        compare(
            f"`seal_batch`, {size}", entries.seal_batch, kernels.pick(entries.seal_batch), view, 7, 3, 9, 1000, SEED, 0
        )
    journal = bytearray()
    for offset in range(256):
        view = memoryview(make_batch(1))
        journal += entries.seal_batch(view, offset, 3, 9, 1000, SEED, 0) + view
    scanned = (memoryview(bytes(journal)), 0, 0, SEED, 1 << 40, 256)
    compare("`scan_entries`, 256 small entries", entries.scan_entries, kernels.pick(entries.scan_entries), *scanned)
    segment = b"".join(make_batch(1, offset) for offset in range(500))
    walked = (segment, 1 << 20, 0, 1 << 40, -1)
    compare("`sound_batches`, 500 small batches", batch.sound_batches, kernels.pick(batch.sound_batches), *walked)


def spark() -> None:
    opened = open_batch(bytes(make_batch(150)))

    def fill(append: Callable[..., None]) -> None:
        append(columns.Columns(), *opened, 0, 1 << 40)

    compare("`columns.append`, 150 records", partial(fill, columns.append), partial(fill, kernels.pick(columns.append)))
    values = row_packing.Cells(0, None, array("i", range(0, 15_001, 100)).tobytes(), bytes(15_000))
    rows = row_packing.Rows(150, NOW, values, keys=values)

    def pack(pack_rows: Callable[..., int]) -> None:
        pack_rows(rows, 0, [row_packing.PackedRecords() for _ in range(4)], 0, 1 << 30, 1 << 30)

    compare(
        "`pack_rows`, 150 rows with keys and values of 100 bytes",
        partial(pack, row_packing.pack_rows),
        partial(pack, kernels.pick(row_packing.pack_rows)),
    )


def wire(partitions: int) -> None:
    data = bytes(make_batch(1))
    numbers = range(partitions)
    sent = [ProduceRequest.PartitionProduceData(n, data) for n in numbers]
    placed = [ProduceResponse.PartitionProduceResponse(n, 0, 5, -1, 0) for n in numbers]
    wanted = [FetchRequest.FetchPartition(n, -1, 5) for n in numbers]
    found = [FetchResponse.PartitionData(n, 0, 5, 5, 0, records=[data]) for n in numbers]
    requests: list[tuple[Message, int]] = [
        (ProduceRequest(None, -1, 30_000, [ProduceRequest.TopicProduceData(*TOPIC, sent)]), 9),
        (FetchRequest(topics=[FetchRequest.FetchTopic(*TOPIC, wanted)]), 12),
    ]
    answers: list[tuple[Message, int]] = [
        (ProduceResponse([ProduceResponse.TopicProduceResponse(*TOPIC, placed)]), 9),
        (FetchResponse(responses=[FetchResponse.FetchableTopicResponse(*TOPIC, found)]), 12),
    ]
    for message, version in requests:
        cls = type(message)
        frame = memoryview(b"".join(codec.pure_encoder(cls, version)(message)))
        twin = codec.pure_decoder(cls, version)
        kernel = kernels.pick(codec.decoder_for)(cls.__name__, version, twin)
        compare(f"decode {cls.__name__}, {partitions} partitions", twin, kernel, frame, 0)
    for message, version in answers:
        cls = type(message)
        pure = codec.pure_encoder(cls, version)
        compiled = kernels.pick(codec.encoder_for)(cls.__name__, version, pure)
        compare(f"encode {cls.__name__}, {partitions} partitions", pure, compiled, message)


def main() -> None:
    print(f"{kernels.summary()}\n\n| what | pure, us | kernel, us | times |\n|---|---|---|---|")
    storage()
    spark()
    for partitions in (1, 1000):
        wire(partitions)


if __name__ == "__main__":
    main()
