"""Writes, syncs and reads that fail with EIO under load, on either disk, and disks that work again."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable

from broker_process import wait_until
from cairnmq.wire.apis import FETCH
from cairnmq.wire.codec import decode, encode
from cairnmq.wire.framing import read_response_header, request_frame
from cairnmq.wire.messages import FetchRequest, FetchResponse
from crash.ledger import Place
from faults.disks import Rules
from faults.scene import PLACES, REPAIRED_SECONDS, SECONDS, Scene

EIO = errno.EIO
KAFKA_STORAGE_ERROR = 56
FETCH_VERSION = 11


def test_the_journal_stops_and_goes_on(make_scene: Callable[..., Scene], rules: Rules) -> None:
    scene = make_scene(environment=rules.environment)
    load = scene.load()
    for operation in ("write", "sync"):
        load.wait_for(500, SECONDS)
        rules.put(f"{operation} {EIO} /journals/0/")
        reason = scene.wait_for_reason("journal 0", f"{operation} failed", "the disk failed")
        assert "retrying every second" in reason
        scene.read_all()
        rules.put()
        scene.wait_until_well()
    load.wait_for(500, SECONDS)
    scene.ends_well()


def test_the_splitter_stops_and_goes_on(make_scene: Callable[..., Scene], rules: Rules) -> None:
    """Producing and consuming go on meanwhile."""
    scene = make_scene(environment=rules.environment)
    load = scene.load()
    for operation in ("write", "sync"):
        load.wait_for(500, SECONDS)
        rules.put(*(f"{operation} {EIO} /data/{place}" for place in ("packs", "queues", "checkpoints")))
        scene.wait_for_reason("the disk failed")
        load.wait_for(500, SECONDS)
        scene.read_all()
        rules.put()
        scene.wait_until_well()
    load.wait_for(500, SECONDS)
    scene.ends_well()


def test_one_failed_write_or_sync_costs_no_record(make_scene: Callable[..., Scene], rules: Rules) -> None:
    """Many short ones, wherever they fall."""
    scene = make_scene(environment=rules.environment)
    load = scene.load()
    for operation in ("write", "sync") * 2:
        load.wait_for(200, SECONDS)
        rules.put(f"{operation} {EIO} /journals/0/")
        scene.wait_for_reason("failed")
        rules.put()
    scene.wait_until_well()
    load.wait_for(200, SECONDS)
    scene.ends_well()


def test_a_read_that_fails_is_told_to_its_reader_alone(make_scene: Callable[..., Scene], rules: Rules) -> None:
    scene = make_scene(environment=rules.environment)
    load = scene.load()
    load.wait_for(500, SECONDS)
    wait_until(lambda: any((scene.broker.data / "queues" / "own-0").glob("*.log")), SECONDS, "a segment")
    load.finish()
    wait_until(lambda: scene.status()["splitter"]["lag_bytes"] == 0, SECONDS, "everything to be split")
    rules.put(f"read {EIO} /data/queues/own-0/")
    with socket.create_connection(("127.0.0.1", scene.broker.port)) as link:
        assert fetch_errors(link, [PLACES[2]]) == {PLACES[2]: KAFKA_STORAGE_ERROR}
        one_fails = {PLACES[0]: 0, PLACES[1]: 0, PLACES[2]: KAFKA_STORAGE_ERROR}
        wait_until(lambda: fetch_errors(link, PLACES) == one_fails, SECONDS, "the error beside good answers")
        rules.put()
        wait_until(lambda: set(fetch_errors(link, PLACES).values()) == {0}, REPAIRED_SECONDS, "good answers")
    scene.ends_well(kill=False)


def fetch_errors(link: socket.socket, places: list[Place]) -> dict[Place, int]:
    """One fetch from the beginning of each; client libraries hide which partition failed."""
    topics = [
        FetchRequest.FetchTopic(
            topic=topic,
            partitions=[
                FetchRequest.FetchPartition(partition=place.partition, fetch_offset=0, partition_max_bytes=1000)
                for place in places
                if place.topic == topic
            ],
        )
        for topic in dict.fromkeys(place.topic for place in places)
    ]
    request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=topics)
    link.settimeout(SECONDS)
    link.sendall(b"".join(request_frame(FETCH, FETCH_VERSION, 7, None, encode(request, FETCH_VERSION))))
    with link.makefile("rb") as stream:
        (size,) = struct.unpack(">i", stream.read(4))
        frame = stream.read(size)
    _, position = read_response_header(frame, FETCH, FETCH_VERSION)
    answer, _ = decode(FetchResponse, FETCH_VERSION, frame, position)
    return {
        Place(topic.topic, data.partition_index): data.error_code
        for topic in answer.responses
        for data in topic.partitions
    }
