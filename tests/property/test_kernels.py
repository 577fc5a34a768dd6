"""Kernels and their pure twins give the same answer to anything: good bytes, cut bytes, changed bytes, odd values."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from crc32c import crc32c as by_package
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq import kernels
from cairnmq.broker.leadership import JournalView, Leadership
from cairnmq.broker.requests import fetch_rows
from cairnmq.codec import batch
from cairnmq.codec.batch import CRC_START, HEADER_SIZE
from cairnmq.codec.crc32c import crc32c
from cairnmq.errors import Refusal
from cairnmq.metadata.image import QueueRange, Topic
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.batches import admission
from cairnmq.storage.files.format import DURABLE_FLAG, FACT, QUEUE_ID_MAX, Leader, segment_entry, whole_frame
from cairnmq.storage.journal import entries
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.queue.state import QueueState
from cairnmq.wire import codec
from cairnmq.wire.messages import FetchRequest, FetchResponse, Message, ProduceRequest, ProduceResponse

ROOT = Path(__file__).parent.parent.parent
NOW = 1_700_000_000_000
SEED = 0x5EED
I16, I32, I64 = (st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (16, 32, 64))

has_compiler = any(shutil.which(name) for name in ("cc", "gcc", "clang"))
forced_pure = os.environ.get("CAIRNMQ_PURE") == "1"


def kernel_of(twin: Callable[..., Any]) -> Callable[..., Any]:
    kernel = kernels.pick(twin)
    if kernel is twin:
        pytest.skip("no compiled kernels here")
    return kernel


@pytest.mark.skipif(not has_compiler or forced_pure, reason="no compiler, or CAIRNMQ_PURE=1")
def test_they_are_in_use_where_a_compiler_is() -> None:
    assert kernels.summary() == "compiled kernels"


def test_they_can_be_switched_off() -> None:
    program = """
from cairnmq import kernels
from cairnmq.codec.batch import sound_batches
assert kernels.pick(sound_batches) is sound_batches
print(kernels.summary())
"""
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "CAIRNMQ_PURE": "1"}, capture_output=True)
    assert done.stdout.decode() == "pure Python\n", done.stderr.decode()


@pytest.mark.skipif(forced_pure, reason="this is that run")
def test_the_suites_pass_without_them() -> None:
    suites = ["tests/unit/wire", "tests/unit/storage", "tests/unit/codec", "tests/unit/broker/handlers"]
    line = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *suites]
    done = subprocess.run(line, cwd=ROOT, env={**os.environ, "CAIRNMQ_PURE": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


# -------------------------------------------------------------------------------------------------------- batches


@st.composite
def batches(draw: st.DrawFn, *, honest: bool = False) -> bytearray:
    """A batch with a right CRC. Its records are noise: nobody behind the wire looks at them. Around 768 and its
    multiples, CRCs are computed differently."""
    size = draw(st.one_of(st.integers(0, 40), st.integers(700, 800), st.sampled_from([1000, 1576, 2344, 9000, 70_000])))
    records = draw(st.binary(min_size=8, max_size=8)) * (size // 8) + bytes(size % 8)
    count = draw(st.integers(1, 5))
    attributes, delta, base_time, max_time = 0, count - 1, NOW, NOW
    pid, epoch, sequence = draw(st.sampled_from([(-1, -1, -1), (7, 0, 0), (1 << 40, 3, 2**31 - 1)]))
    if not honest:
        attributes = draw(st.one_of(st.integers(0, 4), I16))
        count = draw(st.one_of(st.just(count), I32))
        delta = draw(st.one_of(st.just(delta), I32))
        base_time, max_time = draw(I64 | st.just(NOW)), draw(I64 | st.just(NOW) | st.integers(-1, 2))
        pid, sequence = draw(I64 | st.just(pid)), draw(I32 | st.just(sequence))
    data = bytearray(
        batch.HEADER.pack(
            draw(st.integers(0, 50) if honest else I64),
            HEADER_SIZE + len(records) - 12,
            draw(st.integers(0, 3)),
            2,
            0,
            attributes,
            delta,
            base_time,
            max_time,
            pid,
            epoch,
            sequence,
            count,
        )
    )
    data += records
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[CRC_START:]))
    return data


@st.composite
def harmed(draw: st.DrawFn, data: bytes) -> bytearray:
    """The same bytes; or cut; or with some of them changed."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(0, 2))):
        if not changed:
            break
        position = draw(st.integers(0, min(len(changed), 200) - 1) | st.integers(0, len(changed) - 1))
        changed[position] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    if draw(st.booleans()):
        del changed[draw(st.integers(0, len(changed))) :]
    return changed


configs = st.builds(
    LogConfig,
    max_message_bytes=st.sampled_from([100, 1 << 20]),
    segment_bytes=st.sampled_from([100, 1 << 30]),
    append_time=st.booleans(),
    timestamp_before_max_ms=st.sampled_from([0, 1000, 2**63 - 1]),
    timestamp_after_max_ms=st.sampled_from([0, 1000, 2**63 - 1]),
)


@settings(max_examples=400)
@given(data=st.data(), config=configs, now_ms=st.sampled_from([NOW, NOW - 1000, NOW - 1001, NOW + 1001, 0, 2**62]))
def test_admission(data: st.DataObject, config: LogConfig, now_ms: int) -> None:
    sent = memoryview(data.draw(batches().flatmap(harmed)))
    assert kernel_of(admission.admit)(sent, config, now_ms) == admission.admit(sent, config, now_ms)


@given(sent=batches(honest=True))
def test_admission_does_not_need_the_twin_for_a_good_batch(sent: bytearray) -> None:
    kernel = kernel_of(admission.admit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module(kernel.__module__), "_admit", None)
        assert not isinstance(kernel(memoryview(sent), LogConfig(), NOW), Refusal)


@settings(max_examples=300)
@given(
    found=st.lists(batches(honest=True) | batches(), max_size=4).map(b"".join).flatmap(harmed),
    max_bytes=st.sampled_from([-5, 0, 61, 100, 1000, 1 << 40]),
    offset=st.sampled_from([0, 1, 20, 2**62]) | I64,
    limit=st.sampled_from([0, 1, 20, 2**62]) | I64,
    epoch=st.sampled_from([-1, 0, 1, 2**31 - 1]),
)
def test_sound_batches(found: bytearray, max_bytes: int, offset: int, limit: int, epoch: int) -> None:
    twin = batch.sound_batches
    asked = (bytes(found), max_bytes, offset, limit, epoch)
    assert kernel_of(twin)(*asked) == twin(*asked)
    if len(found) >= batch.HEADER_SIZE:  # and where the first one is what is asked for
        first = batch.read_header(found)
        asked = (bytes(found), max_bytes, first.base_offset, limit, first.leader_epoch)
        assert kernel_of(twin)(*asked) == twin(*asked)


# -------------------------------------------------------------------------------------------------------- entries


@given(
    sent=batches(),
    offset=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 2**31 - 1),
    queue_id=st.integers(0, QUEUE_ID_MAX),
    synced=st.integers(0, 2**64 - 1),
    seed=st.integers(0, 2**32 - 1),
    flags=st.integers(0, 2**16 - 1),
)
def test_seal_batch(
    sent: bytearray, offset: int, epoch: int, queue_id: int, synced: int, seed: int, flags: int
) -> None:
    other = bytearray(sent)
    frame = kernel_of(entries.seal_batch)(memoryview(sent), offset, epoch, queue_id, synced, seed, flags)
    assert frame == entries.seal_batch(memoryview(other), offset, epoch, queue_id, synced, seed, flags)
    assert sent == other


def test_seal_batch_writes_nothing_outside() -> None:
    kernel = kernel_of(entries.seal_batch)
    for size in range(HEADER_SIZE):
        with pytest.raises(ValueError):
            kernel(memoryview(bytearray(size)), 0, 0, 0, 0, 0, 0)
    with pytest.raises((BufferError, ValueError)):
        kernel(memoryview(bytes(100)), 0, 0, 0, 0, 0, 0)
    for seal in (kernel, entries.seal_batch):
        with pytest.raises(OverflowError):
            seal(memoryview(bytearray(100)), 0, 0, QUEUE_ID_MAX + 1, 0, 0, 0)


@st.composite
def journal_bytes(draw: st.DrawFn) -> bytes:
    parts: list[bytes] = [segment_entry(0, SEED, 1, 0, NOW, Leader(1, 1))] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 5))):
        queue_id, synced = draw(st.sampled_from([0, 1, QUEUE_ID_MAX])), draw(st.sampled_from([0, 1000, 2**64 - 1]))
        # known, to be ignored, and one that ends a scan
        flags = draw(st.sampled_from([0, DURABLE_FLAG, 0x8000 | DURABLE_FLAG, 0x40]))
        kind = draw(st.sampled_from(["batch", "batch", "fact", "short batch"]))
        if kind == "fact":
            payload = draw(st.binary(max_size=1000))
            parts.append(whole_frame(FACT, 1, queue_id, synced, payload, SEED, flags) + payload)
            continue
        sent = draw(batches())
        if kind == "short batch":
            del sent[draw(st.integers(CRC_START, HEADER_SIZE)) :]
            struct.pack_into(">i", sent, 8, len(sent) - 12)
            struct.pack_into(">I", sent, 17, crc32c(memoryview(sent)[CRC_START:]))
        parts += (
            entries.seal_batch(memoryview(sent), draw(st.integers(0, 2**63 - 1)), 1, queue_id, synced, SEED, flags),
            sent,
        )
    return b"".join(parts)


@settings(max_examples=400)
@given(
    data=journal_bytes().flatmap(harmed),
    at=st.sampled_from([0, 0, 0, 48, 1, 10**6]),
    origin=st.sampled_from([0, 10**12]),
    most=st.sampled_from([0, 1, 2, 256]),
    room=st.sampled_from([0, 1000, 10**9]),
    seed=st.sampled_from([SEED, SEED, SEED, 0]),
)
def test_scan_entries(data: bytearray, at: int, origin: int, most: int, room: int, seed: int) -> None:
    view = memoryview(bytes(data))
    arguments = (view, at, origin, seed, origin + room, most)
    assert kernel_of(entries.scan_entries)(*arguments) == entries.scan_entries(*arguments)


@settings(max_examples=400)
@given(
    data=journal_bytes().flatmap(harmed),
    at=st.sampled_from([0, 0, 1, 48, 60, 10**6]),
    until=st.sampled_from([0, 1, 50, 10**6]),
    origin=st.sampled_from([0, 10**12]),
    seed=st.sampled_from([SEED, SEED, SEED, 0]),
    credit=st.sampled_from([0, 300, 10**9]),
)
def test_find_entry(data: bytearray, at: int, until: int, origin: int, seed: int, credit: int) -> None:
    view = memoryview(bytes(data))
    arguments = (view, at, until, origin, seed, credit)
    assert kernel_of(entries.find_entry)(*arguments) == entries.find_entry(*arguments)


@given(
    data=st.binary(max_size=3000),
    size=st.sampled_from([0, 1, 65_535, 65_536, 300_000]),
    value=st.integers(0, 2**32 - 1),
)
def test_crc32c(data: bytes, size: int, value: int) -> None:
    whole = memoryview(data + bytes(size))
    for part in (whole, whole[1:], bytearray(whole)):
        assert crc32c(part, value) == by_package(part, value)
    assert crc32c(whole) == by_package(whole)


@pytest.mark.parametrize("size", [*range(0, 200, 7), *range(700, 1700), 100_000])
def test_crcs_of_every_size(size: int) -> None:
    """Were the kernel's CRC another one, its scan would stop before the entry."""
    payload = bytes(range(1, 252)) * (size // 251 + 1)
    entry = whole_frame(FACT, 1, 2, 3, payload[:size], SEED) + payload[:size]
    found, end = kernel_of(entries.scan_entries)(memoryview(entry), 0, 0, SEED, 1 << 40, 9)
    assert len(found) == 1 and end == len(entry)


# ---------------------------------------------------------------------------------------------------------- fetch


@st.composite
def fetches(draw: st.DrawFn) -> tuple[Any, Topic, list[FetchRequest.FetchPartition]]:
    """A topic, some of whose queues are there, and what a fetch asks of it."""
    cycle = (2, 0, 1)
    ranges = draw(st.sampled_from([(QueueRange(5, 4, cycle),), (QueueRange(5, 2, cycle), QueueRange(9, 2, cycle)), ()]))
    topic = Topic("t", bytes(16), ranges)
    live: dict[int, Queue] = {}
    for queue_id in draw(st.sets(st.integers(4, 11))):
        start, end = sorted(draw(st.tuples(*2 * [st.integers(0, 4)])))
        queue = Queue(QueueSpec(queue_id, "t", 0, bytes(16), LogConfig(), queue_id % 3), QueueState(start, end))
        queue.high_watermark = draw(st.integers(start, end))
        if draw(st.booleans()):
            queue.state.ends(start, end)  # a transaction that is not decided yet
        live[queue_id] = queue
    few, epochs = st.integers(-1, 5), st.sampled_from([-1, -1, 0])
    asked = draw(st.lists(st.builds(FetchRequest.FetchPartition, few, few, few, epochs), max_size=6))
    leadership = Leadership(1)
    for journal in range(3):
        if draw(st.sampled_from([True, True, False])):
            leadership.lead(journal, draw(few), is_ready=draw(st.booleans()))
        else:
            leadership.know(journal, JournalView(draw(st.integers(-1, 2)), draw(few), (1, 2), (2,)))
    return SimpleNamespace(store=SimpleNamespace(queues=live), leadership=leadership), topic, asked


@settings(max_examples=300)
@given(fetch=fetches(), known=st.booleans(), gone=st.integers(4, 11), full=st.booleans(), committed=st.booleans())
def test_rows_of_a_fetch(fetch: Any, known: bool, gone: int, full: bool, committed: bool) -> None:
    ctx, topic, asked = fetch
    queues = fetch_rows.find_queues(ctx, topic if known else None, asked)
    assert kernel_of(fetch_rows.find_queues)(ctx, topic if known else None, asked) == queues
    live = {queue_id: queue for queue_id, queue in ctx.store.queues.items() if queue_id != gone}
    for skipped in range(len(asked) + 1):
        answers: list[Any] = [None] * skipped
        others = list(answers)
        at = fetch_rows.pass_over(asked, queues, live, answers, full, committed)
        assert kernel_of(fetch_rows.pass_over)(asked, queues, live, others, full, committed) == at
        assert len(answers) == at and others == answers


# ----------------------------------------------------------------------------------------------------------- wire

names = st.sampled_from(["", "t", "töpic", "x" * 126, "x" * 127, "x" * 128, "x" * 32767])
ids = st.binary(min_size=16, max_size=16)
records = st.sampled_from(
    [None, b"", b"r", b"r" * 126, b"r" * 127, b"r" * 16383, b"r" * 16384, bytearray(70), [], [b""]]
)
records_in_parts = records | st.lists(st.sampled_from([b"", b"part", memoryview(b"view")]), max_size=3)
produced = st.builds(
    ProduceRequest,
    transactional_id=st.none() | names,
    acks=I16,
    timeout_ms=I32,
    topic_data=st.lists(
        st.builds(
            ProduceRequest.TopicProduceData,
            name=names,
            topic_id=ids,
            partition_data=st.lists(
                st.builds(ProduceRequest.PartitionProduceData, index=I32, records=records_in_parts), max_size=3
            ),
        ),
        max_size=2,
    ),
)
placed = st.builds(
    ProduceResponse,
    throttle_time_ms=I32,
    node_endpoints=st.just([]) | st.lists(st.builds(ProduceResponse.NodeEndpoint, node_id=I32), max_size=1),
    responses=st.lists(
        st.builds(
            ProduceResponse.TopicProduceResponse,
            name=names,
            topic_id=ids,
            partition_responses=st.lists(
                st.builds(
                    ProduceResponse.PartitionProduceResponse,
                    index=I32,
                    error_code=I16,
                    base_offset=I64,
                    log_append_time_ms=I64,
                    log_start_offset=I64,
                    error_message=st.none() | st.none() | names,
                ),
                max_size=3,
            ),
        ),
        max_size=2,
    ),
)
wanted = st.builds(
    FetchRequest,
    cluster_id=st.none() | st.none() | names,
    replica_id=I32,
    max_wait_ms=I32,
    min_bytes=I32,
    max_bytes=I32,
    isolation_level=st.integers(-128, 127),
    session_id=I32,
    session_epoch=I32,
    rack_id=names,
    forgotten_topics_data=st.just([]) | st.just([FetchRequest.ForgottenTopic("t", bytes(16), [1, 2])]),
    topics=st.lists(
        st.builds(
            FetchRequest.FetchTopic,
            topic=names,
            topic_id=ids,
            partitions=st.lists(
                st.builds(
                    FetchRequest.FetchPartition,
                    partition=I32,
                    current_leader_epoch=I32,
                    fetch_offset=I64,
                    last_fetched_epoch=I32,
                    log_start_offset=I64,
                    partition_max_bytes=I32,
                ),
                max_size=3,
            ),
        ),
        max_size=2,
    ),
)
fetched = st.builds(
    FetchResponse,
    throttle_time_ms=I32,
    error_code=I16,
    session_id=I32,
    responses=st.lists(
        st.builds(
            FetchResponse.FetchableTopicResponse,
            topic=names,
            topic_id=ids,
            partitions=st.lists(
                st.builds(
                    FetchResponse.PartitionData,
                    partition_index=I32,
                    error_code=I16,
                    high_watermark=I64,
                    last_stable_offset=I64,
                    log_start_offset=I64,
                    aborted_transactions=st.none() | st.just([]) | st.just([FetchResponse.AbortedTransaction(1, 2)]),
                    preferred_read_replica=I32,
                    records=records_in_parts,
                ),
                max_size=3,
            ),
        ),
        max_size=2,
    ),
)
REQUESTS = {ProduceRequest: (produced, 3, 13), FetchRequest: (wanted, 4, 18)}
RESPONSES = {ProduceResponse: (placed, 3, 13), FetchResponse: (fetched, 4, 18)}


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except (codec.Malformed, IndexError, struct.error, UnicodeDecodeError, TypeError, ValueError, AttributeError) as no:
        return type(no), str(no)


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
@settings(max_examples=300)
@given(data=st.data())
def test_requests(cls: type[Message], data: st.DataObject) -> None:
    strategy, first, last = REQUESTS[cls]
    version = data.draw(st.integers(first, last))
    good = b"".join(codec.pure_encoder(cls, version)(data.draw(strategy)))
    frame = memoryview(b"before" + data.draw(harmed(good)) + data.draw(st.sampled_from([b"", b"behind"])))
    pure = codec.pure_decoder(cls, version)
    kernel = kernel_of(codec.decoder_for)(cls.__name__, version, pure)
    assert outcome(kernel, frame, 6) == outcome(pure, frame, 6)


@pytest.mark.parametrize("cls", RESPONSES, ids=lambda cls: cls.__name__)
@settings(max_examples=300)
@given(data=st.data())
def test_responses(cls: type[Message], data: st.DataObject) -> None:
    strategy, first, last = RESPONSES[cls]
    version = data.draw(st.integers(first, last))
    message = data.draw(strategy)
    pure = codec.pure_encoder(cls, version)
    kernel = kernel_of(codec.encoder_for)(cls.__name__, version, pure)
    assert outcome(kernel, message) == outcome(pure, message)


def no_twin(*_: object) -> Any:
    raise AssertionError("the kernel left this to its twin")


@pytest.mark.parametrize("version", range(3, 19))
def test_usual_messages_do_not_need_the_twin(version: int) -> None:
    decoder_for, encoder_for = kernel_of(codec.decoder_for), kernel_of(codec.encoder_for)
    usual: list[Message] = []
    if version <= 13:
        part = ProduceRequest.PartitionProduceData(3, b"records")
        usual.append(ProduceRequest("id", 1, 2, [ProduceRequest.TopicProduceData("t", bytes(16), [part, part])]))
        answer = ProduceResponse.PartitionProduceResponse(1, 2, 3, 4, 5)
        usual.append(ProduceResponse([ProduceResponse.TopicProduceResponse("t", b"u" * 16, [answer, answer])]))
    if version >= 4:
        fetch = FetchRequest.FetchPartition(1, 2, 3)
        usual.append(FetchRequest(topics=[FetchRequest.FetchTopic("t", b"u" * 16, [fetch])], rack_id="r"))
        found = FetchResponse.PartitionData(1, 2, 3, records=[b"one", b"two"])
        usual.append(FetchResponse(responses=[FetchResponse.FetchableTopicResponse("t", b"u" * 16, [found, found])]))
    for message in usual:
        cls = type(message)
        frame = memoryview(b"".join(codec.pure_encoder(cls, version)(message)))
        if cls in REQUESTS:
            assert decoder_for(cls.__name__, version, no_twin)(frame, 0) == codec.pure_decoder(cls, version)(frame, 0)
        else:
            assert b"".join(encoder_for(cls.__name__, version, no_twin)(message)) == frame


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("partition_index", 2**31),
        ("error_code", -(2**15) - 1),
        ("high_watermark", 2**63),
        ("log_start_offset", 2**70),
        ("preferred_read_replica", "three"),
        ("last_stable_offset", 1.5),
        ("records", 7),
        ("records", [7]),
    ],
)
def test_values_that_do_not_fit_are_errors(name: str, value: object) -> None:
    partition = FetchResponse.PartitionData(**{name: value})  # type: ignore[arg-type]
    topic = FetchResponse.FetchableTopicResponse("t", bytes(16), [partition])
    with pytest.raises(ValueError, match="FetchResponse v12 cannot be sent"):
        codec.encode(FetchResponse(responses=[topic]), 12)


@pytest.mark.parametrize("topic", ["x" * 32768, None, b"bytes"])
def test_names_that_do_not_fit_are_errors(topic: Any) -> None:
    with pytest.raises(ValueError):
        codec.encode(ProduceResponse([ProduceResponse.TopicProduceResponse(topic)]), 9)
