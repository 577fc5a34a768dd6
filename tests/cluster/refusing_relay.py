"""A relay between a producer and one broker that refuses batches as the leaders of a cluster do when they change."""

from __future__ import annotations

import socket
import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass

from cairnmq.codec.batch import read_header
from cairnmq.errors import ErrorCode
from cairnmq.wire.codec import decode, encode
from cairnmq.wire.framing import read_request_header, read_response_header, response_frame
from cairnmq.wire.messages import ProduceRequest, ProduceResponse

PRODUCE = 0


@dataclass
class Asked:
    """A produce request; each of librdkafka's has one partition. `frame`: without its size."""

    version: int
    correlation_id: int
    topic: ProduceRequest.TopicProduceData
    frame: bytes
    client: socket.socket
    broker: socket.socket

    @property
    def partition(self) -> int:
        return self.topic.partition_data[0].index

    @property
    def producer_epoch(self) -> int:
        records = self.topic.partition_data[0].records
        assert isinstance(records, memoryview)
        return read_header(records).producer_epoch

    def refusal(self, code: ErrorCode) -> bytes:
        row = ProduceResponse.PartitionProduceResponse(index=self.partition, error_code=code, base_offset=-1)
        topic = ProduceResponse.TopicProduceResponse(
            name=self.topic.name, topic_id=self.topic.topic_id, partition_responses=[row]
        )
        body = encode(ProduceResponse(responses=[topic]), self.version)
        return b"".join(response_frame(PRODUCE, self.version, self.correlation_id, body))


class RefusingRelay:
    """`answers`: what each partition's batches were told, in order: the producer's epoch and the error code."""

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self.target = target
        self.answers: dict[int, list[tuple[int, ErrorCode]]] = defaultdict(list)
        self._kept: dict[int, list[Asked]] = {}
        self._stored: dict[int, ErrorCode] = {}
        self._refusals: list[tuple[Asked, ErrorCode]] = []
        self._under_way: dict[tuple[socket.socket, int], tuple[Asked, ErrorCode | None]] = {}
        self._lock = threading.RLock()
        self._listener = socket.create_server(("127.0.0.1", port))
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    # What happens to batches

    def store_and_refuse(self, partition: int, code: ErrorCode) -> None:
        """The next batch, as by a leader that has written it and is demoted then. The answer waits for `refuse`."""
        self._stored[partition] = code

    def keep(self, partition: int) -> list[Asked]:
        """Requests from here on, until `refuse`; returns them as they come."""
        self._kept[partition] = []
        return self._kept[partition]

    def refuse(self, partition: int, code: ErrorCode) -> None:
        """The first one that was kept does not reach the broker; the others do, and all that come later."""
        with self._lock:
            first, *others = self._kept.pop(partition)
            self.answers[partition].append((first.producer_epoch, code))
            for asked, refused in (*self._refusals, (first, code)):
                asked.client.sendall(asked.refusal(refused))
            self._refusals.clear()
            for each in others:
                self._pass(each)

    # The relay

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self.target))
            self._sockets += [client, broker]
            for pump in (self._requests, self._responses):
                self._threads.append(threading.Thread(target=pump, args=(client, broker), daemon=True))
                self._threads[-1].start()

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        with suppress(OSError):
            while (frame := _next_frame(client)) is not None:
                header, position = read_request_header(frame)
                if header.api_key != PRODUCE:
                    broker.sendall(_framed(frame))
                    continue
                request, _ = decode(ProduceRequest, header.api_version, memoryview(frame), position)
                (topic,) = request.topic_data
                asked = Asked(header.api_version, header.correlation_id, topic, frame, client, broker)
                with self._lock:
                    if asked.partition in self._kept:
                        self._kept[asked.partition].append(asked)
                    else:
                        self._pass(asked)
            broker.shutdown(socket.SHUT_WR)

    def _pass(self, asked: Asked) -> None:
        self._under_way[asked.client, asked.correlation_id] = asked, self._stored.pop(asked.partition, None)
        asked.broker.sendall(_framed(asked.frame))

    def _responses(self, client: socket.socket, broker: socket.socket) -> None:
        with suppress(OSError):
            while (frame := _next_frame(broker)) is not None:
                with self._lock:
                    asked, code = self._under_way.pop((client, int.from_bytes(frame[:4], "big")), (None, None))
                    if asked is None or self._passes(asked, code, frame):
                        client.sendall(_framed(frame))
            client.shutdown(socket.SHUT_WR)

    def _passes(self, asked: Asked, code: ErrorCode | None, frame: bytes) -> bool:
        _, position = read_response_header(frame, PRODUCE, asked.version)
        told, _ = decode(ProduceResponse, asked.version, memoryview(frame), position)
        (row,) = told.responses[0].partition_responses
        assert code is None or row.error_code == ErrorCode.NONE, "what is to be stored and refused is not stored"
        self.answers[asked.partition].append((asked.producer_epoch, code or ErrorCode(row.error_code)))
        if code is None:
            return True
        self._refusals.append((asked, code))
        return False

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        for each in (self._listener, *self._sockets):
            each.close()


def _next_frame(source: socket.socket) -> bytes | None:
    size = _exactly(source, 4)
    return None if size is None else _exactly(source, int.from_bytes(size, "big"))


def _exactly(source: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            return None
        data += more
    return data


def _framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame
