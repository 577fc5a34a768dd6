# cython: language_level=3, boundscheck=False, wraparound=False
"""Kernel of codec.py: Produce and Fetch, which name every partition in every request and answer.

Kernels do the usual case only. Bytes that are malformed or carry tagged fields, and values that are out of range or
rarely sent, go to the pure codec from the beginning, which decodes them, sends them or says what is wrong with them.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_Check
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from cairnmq.wire.decoders import ITEMS_MAX
from cairnmq.wire.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse

include "../codec/struct_field.pxi"

cdef int64_t ITEMS = ITEMS_MAX
cdef bytes NO_ID = bytes(16)
cdef object REPLICA_STATE = FetchRequest().replica_state
cdef object DIVERGING_EPOCH = FetchResponse.PartitionData().diverging_epoch
cdef object CURRENT_LEADER = FetchResponse.PartitionData().current_leader
cdef object SNAPSHOT_ID = FetchResponse.PartitionData().snapshot_id
cdef object PRODUCE_LEADER = ProduceResponse.PartitionProduceResponse().current_leader
cdef object ProduceTopic = ProduceRequest.TopicProduceData
cdef object ProducePartition = ProduceRequest.PartitionProduceData
cdef object FetchTopic = FetchRequest.FetchTopic
cdef object FetchPartition = FetchRequest.FetchPartition

cdef object Placed = ProduceResponse.PartitionProduceResponse
cdef Py_ssize_t PLACED_INDEX = cairn_field_place(Placed, "index")
cdef Py_ssize_t PLACED_ERROR = cairn_field_place(Placed, "error_code")
cdef Py_ssize_t PLACED_OFFSET = cairn_field_place(Placed, "base_offset")
cdef Py_ssize_t PLACED_TIME = cairn_field_place(Placed, "log_append_time_ms")
cdef Py_ssize_t PLACED_START = cairn_field_place(Placed, "log_start_offset")
cdef Py_ssize_t PLACED_ERRORS = cairn_field_place(Placed, "record_errors")
cdef Py_ssize_t PLACED_MESSAGE = cairn_field_place(Placed, "error_message")
cdef Py_ssize_t PLACED_LEADER = cairn_field_place(Placed, "current_leader")

cdef object Fetched = FetchResponse.PartitionData
cdef Py_ssize_t FETCHED_INDEX = cairn_field_place(Fetched, "partition_index")
cdef Py_ssize_t FETCHED_ERROR = cairn_field_place(Fetched, "error_code")
cdef Py_ssize_t FETCHED_WATERMARK = cairn_field_place(Fetched, "high_watermark")
cdef Py_ssize_t FETCHED_STABLE = cairn_field_place(Fetched, "last_stable_offset")
cdef Py_ssize_t FETCHED_START = cairn_field_place(Fetched, "log_start_offset")
cdef Py_ssize_t FETCHED_DIVERGING = cairn_field_place(Fetched, "diverging_epoch")
cdef Py_ssize_t FETCHED_LEADER = cairn_field_place(Fetched, "current_leader")
cdef Py_ssize_t FETCHED_SNAPSHOT = cairn_field_place(Fetched, "snapshot_id")
cdef Py_ssize_t FETCHED_ABORTED = cairn_field_place(Fetched, "aborted_transactions")
cdef Py_ssize_t FETCHED_REPLICA = cairn_field_place(Fetched, "preferred_read_replica")
cdef Py_ssize_t FETCHED_RECORDS = cairn_field_place(Fetched, "records")


class Unusual(Exception):
    """A case for the pure codec."""


def decoder_for(str name, int version, pure):
    if name == "ProduceRequest" and 3 <= version <= 13:
        return ProduceDecoder(version, pure)
    if name == "FetchRequest" and 4 <= version <= 18:
        return FetchDecoder(version, pure)
    return pure


def encoder_for(str name, int version, pure):
    if name == "ProduceResponse" and 3 <= version <= 13:
        return ProduceEncoder(version, pure)
    if name == "FetchResponse" and 4 <= version <= 18:
        return FetchEncoder(version, pure)
    return pure


# ------------------------------------------------------------------------------------------------------- decoding


cdef class Decoder:
    cdef int version
    cdef object pure

    def __init__(self, int version, pure):
        self.version = version
        self.pure = pure

    def __call__(self, view, Py_ssize_t pos):
        cdef Py_buffer buffer
        # One per call: an allocation may run finalizers, and with them other threads that decode too.
        cdef Reader reader = Reader.__new__(Reader)
        PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
        try:
            if pos < 0 or pos > buffer.len or buffer.itemsize != 1:
                raise Unusual
            reader.data = <const uint8_t*>buffer.buf
            reader.at = pos
            reader.end = buffer.len
            return self.message(reader, view), reader.at
        except (Unusual, UnicodeDecodeError):
            return self.pure(view, pos)
        finally:
            PyBuffer_Release(&buffer)

    cdef object message(self, Reader r, view):
        raise NotImplementedError


cdef class Reader:
    """`at` and `end` bound what is left; every read asks for room first."""

    cdef bint flexible
    cdef const uint8_t* data
    cdef Py_ssize_t at, end
    cdef int64_t items

    cdef int need(self, int64_t size) except -1:
        if size < 0 or size > self.end - self.at:
            raise Unusual
        return 0

    cdef int64_t i8(self) except? -1:
        self.need(1)
        self.at += 1
        return <int8_t>self.data[self.at - 1]

    cdef int64_t i16(self) except? -1:
        self.need(2)
        cdef const uint8_t* p = self.data + self.at
        self.at += 2
        return <int16_t>(p[0] << 8 | p[1])

    cdef int64_t i32(self) except? -1:
        self.need(4)
        cdef const uint8_t* p = self.data + self.at
        self.at += 4
        return <int32_t>(<uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | p[3])

    cdef int64_t i64(self) except? -1:
        cdef int i
        cdef uint64_t value = 0
        self.need(8)
        for i in range(8):
            value = value << 8 | self.data[self.at + i]
        self.at += 8
        return <int64_t>value

    cdef int64_t uvarint(self) except -1:
        cdef uint64_t value = 0
        cdef int shift = 0
        cdef uint8_t byte
        while shift <= 28:
            self.need(1)
            byte = self.data[self.at]
            self.at += 1
            value |= <uint64_t>(byte & 0x7F) << shift
            if byte < 0x80:
                if value > 0xFFFFFFFF:
                    raise Unusual
                return <int64_t>value
            shift += 7
        raise Unusual

    cdef int64_t length(self, bint wide) except -2:
        """-1 for null."""
        cdef int64_t size = self.uvarint() - 1 if self.flexible else self.i32() if wide else self.i16()
        if size < -1:
            raise Unusual
        return size

    cdef int64_t count(self, int smallest) except -1:
        """Of an array's items, none of which is shorter than `smallest`."""
        cdef int64_t size = self.length(True)
        if size < 0 or size * smallest > self.end - self.at:
            raise Unusual
        self.items += size
        if self.items > ITEMS:
            raise Unusual
        return size

    cdef object text(self):
        """None for null."""
        cdef int64_t size = self.length(False)
        if size < 0:
            return None
        if size > 32767:
            raise Unusual
        self.need(size)
        self.at += size
        return PyUnicode_DecodeUTF8(<const char*>self.data + self.at - size, size, NULL)

    cdef object needed_text(self):
        text = self.text()
        if text is None:
            raise Unusual
        return text

    cdef object uuid(self):
        self.need(16)
        self.at += 16
        return PyBytes_FromStringAndSize(<const char*>self.data + self.at - 16, 16)

    cdef int no_tags(self) except -1:
        if self.flexible:
            self.need(1)
            if self.data[self.at] != 0:
                raise Unusual
            self.at += 1
        return 0


cdef class ProduceDecoder(Decoder):
    cdef object message(self, Reader r, view):
        cdef int64_t size
        cdef Py_ssize_t i, j
        cdef list topics = [], partitions
        r.flexible = self.version >= 9
        transactional_id = r.text()
        acks = r.i16()
        timeout_ms = r.i32()
        for i in range(r.count(3 if r.flexible else 6)):
            name, topic_id = "", NO_ID
            if self.version >= 13:
                topic_id = r.uuid()
            else:
                name = r.needed_text()
            partitions = []
            for j in range(r.count(6 if r.flexible else 8)):
                index = r.i32()
                size = r.length(True)
                records = None
                if size >= 0:
                    r.need(size)
                    records = view[r.at : r.at + size]
                    r.at += size
                r.no_tags()
                partitions.append(ProducePartition(index, records))
            r.no_tags()
            topics.append(ProduceTopic(name, topic_id, partitions))
        r.no_tags()
        return ProduceRequest(transactional_id, acks, timeout_ms, topics)


cdef class FetchDecoder(Decoder):
    cdef object message(self, Reader r, view):
        cdef int version = self.version
        cdef int64_t partition, epoch, offset, fetched_epoch, start
        cdef Py_ssize_t i, j
        cdef list topics = [], partitions
        r.flexible = version >= 12
        replica_id = r.i32() if version <= 14 else -1
        max_wait_ms = r.i32()
        min_bytes = r.i32()
        max_bytes = r.i32()
        isolation_level = r.i8()
        session_id = r.i32() if version >= 7 else 0
        session_epoch = r.i32() if version >= 7 else -1
        for i in range(r.count(3 if r.flexible else 6)):
            name, topic_id = "", NO_ID
            if version >= 13:
                topic_id = r.uuid()
            else:
                name = r.needed_text()
            partitions = []
            for j in range(r.count(16)):
                partition = r.i32()
                epoch = r.i32() if version >= 9 else -1
                offset = r.i64()
                fetched_epoch = r.i32() if version >= 12 else -1
                start = r.i64() if version >= 5 else -1
                partitions.append(FetchPartition(partition, epoch, offset, fetched_epoch, start, r.i32()))
                r.no_tags()
            r.no_tags()
            topics.append(FetchTopic(name, topic_id, partitions))
        if version >= 7 and r.count(1) != 0:
            raise Unusual
        rack_id = r.needed_text() if version >= 11 else ""
        r.no_tags()
        return FetchRequest(
            None,
            replica_id,
            REPLICA_STATE,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation_level,
            session_id,
            session_epoch,
            topics,
            [],
            rack_id,
        )


# ------------------------------------------------------------------------------------------------------- encoding


cdef class Writer:
    """Bytes between two runs of records, which are handed on as they are."""

    cdef uint8_t* data
    cdef Py_ssize_t at, size
    cdef bint flexible
    cdef list out

    def __cinit__(self):
        self.out = []
        self.size = 512
        self.data = <uint8_t*>PyMem_Malloc(self.size)
        if self.data == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef int room(self, Py_ssize_t size) except -1:
        cdef uint8_t* larger
        if size > self.size - self.at:
            size = 2 * self.size + size
            larger = <uint8_t*>PyMem_Realloc(self.data, size)
            if larger == NULL:
                raise MemoryError
            self.data = larger
            self.size = size
        return 0

    cdef list finish(self):
        if self.at:
            self.out.append(PyBytes_FromStringAndSize(<char*>self.data, self.at))
            self.at = 0
        return self.out

    cdef int i16(self, int64_t value) except -1:
        if value != <int16_t>value:
            raise Unusual
        self.room(2)
        self.data[self.at] = <uint8_t>(value >> 8)
        self.data[self.at + 1] = <uint8_t>value
        self.at += 2
        return 0

    cdef int i32(self, int64_t value) except -1:
        cdef int i
        if value != <int32_t>value:
            raise Unusual
        self.room(4)
        for i in range(4):
            self.data[self.at + i] = <uint8_t>(value >> (24 - 8 * i))
        self.at += 4
        return 0

    cdef int i64(self, int64_t value) except -1:
        cdef int i
        self.room(8)
        for i in range(8):
            self.data[self.at + i] = <uint8_t>(value >> (56 - 8 * i))
        self.at += 8
        return 0

    cdef int length(self, int64_t size) except -1:
        """Of an array or of records; -1 for null."""
        cdef uint64_t value
        if not self.flexible:
            return self.i32(size)
        value = <uint64_t>(size + 1)
        self.room(10)
        while value > 0x7F:
            self.data[self.at] = <uint8_t>(value & 0x7F | 0x80)
            self.at += 1
            value >>= 7
        self.data[self.at] = <uint8_t>value
        self.at += 1
        return 0

    cdef int bytes_of(self, bytes value) except -1:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(value)
        self.room(size)
        memcpy(self.data + self.at, PyBytes_AS_STRING(value), size)
        self.at += size
        return 0

    cdef int text(self, value) except -1:
        cdef bytes encoded
        if type(value) is not str:
            raise Unusual
        encoded = (<str>value).encode()
        if PyBytes_GET_SIZE(encoded) > 32767:
            raise Unusual
        if self.flexible:
            self.length(PyBytes_GET_SIZE(encoded))
        else:
            self.i16(PyBytes_GET_SIZE(encoded))
        return self.bytes_of(encoded)

    cdef int uuid(self, value) except -1:
        if type(value) is not bytes or PyBytes_GET_SIZE(value) != 16:
            raise Unusual
        return self.bytes_of(<bytes>value)

    cdef int no_tags(self) except -1:
        if self.flexible:
            self.room(1)
            self.data[self.at] = 0
            self.at += 1
        return 0


cdef inline int64_t whole(value) except? -1:
    """A field's number. Left to itself, the conversion would cut the fraction off a float."""
    if not PyLong_Check(value):
        raise Unusual
    return value


cdef class Encoder:
    cdef int version
    cdef object pure

    def __init__(self, int version, pure):
        self.version = version
        self.pure = pure

    def __call__(self, message):
        try:
            return self.buffers(message)
        except (Unusual, OverflowError, TypeError, AttributeError, ValueError):
            return self.pure(message)

    cdef list buffers(self, message):
        raise NotImplementedError


cdef class ProduceEncoder(Encoder):
    cdef list buffers(self, message):
        cdef Writer w = Writer.__new__(Writer)
        cdef int version = self.version
        if message.node_endpoints:
            raise Unusual
        w.flexible = version >= 9
        topics = message.responses
        w.length(len(topics))
        for topic in topics:
            if version >= 13:
                w.uuid(topic.topic_id)
            else:
                w.text(topic.name)
            partitions = topic.partition_responses
            w.length(len(partitions))
            for partition in partitions:
                if type(partition) is not Placed:
                    raise Unusual
                if version >= 8 and (
                    cairn_field(partition, PLACED_ERRORS) or cairn_field(partition, PLACED_MESSAGE) is not None
                ):
                    raise Unusual
                if version >= 10 and cairn_field(partition, PLACED_LEADER) is not PRODUCE_LEADER:
                    raise Unusual
                w.i32(whole(cairn_field(partition, PLACED_INDEX)))
                w.i16(whole(cairn_field(partition, PLACED_ERROR)))
                w.i64(whole(cairn_field(partition, PLACED_OFFSET)))
                w.i64(whole(cairn_field(partition, PLACED_TIME)))
                if version >= 5:
                    w.i64(whole(cairn_field(partition, PLACED_START)))
                if version >= 8:
                    w.length(0)
                    if w.flexible:
                        w.length(-1)
                    else:
                        w.i16(-1)
                w.no_tags()
            w.no_tags()
        w.i32(whole(message.throttle_time_ms))
        w.no_tags()
        return w.finish()


cdef class FetchEncoder(Encoder):
    cdef list buffers(self, message):
        cdef Writer w = Writer.__new__(Writer)
        cdef int version = self.version
        cdef int64_t size
        if message.node_endpoints:
            raise Unusual
        w.flexible = version >= 12
        w.i32(whole(message.throttle_time_ms))
        if version >= 7:
            w.i16(whole(message.error_code))
            w.i32(whole(message.session_id))
        topics = message.responses
        w.length(len(topics))
        for topic in topics:
            if version >= 13:
                w.uuid(topic.topic_id)
            else:
                w.text(topic.topic)
            partitions = topic.partitions
            w.length(len(partitions))
            for partition in partitions:
                if type(partition) is not Fetched:
                    raise Unusual
                aborted = cairn_field(partition, FETCHED_ABORTED)
                if aborted:
                    raise Unusual
                if w.flexible and not (
                    cairn_field(partition, FETCHED_DIVERGING) is DIVERGING_EPOCH
                    and cairn_field(partition, FETCHED_LEADER) is CURRENT_LEADER
                    and cairn_field(partition, FETCHED_SNAPSHOT) is SNAPSHOT_ID
                ):
                    raise Unusual
                w.i32(whole(cairn_field(partition, FETCHED_INDEX)))
                w.i16(whole(cairn_field(partition, FETCHED_ERROR)))
                w.i64(whole(cairn_field(partition, FETCHED_WATERMARK)))
                w.i64(whole(cairn_field(partition, FETCHED_STABLE)))
                if version >= 5:
                    w.i64(whole(cairn_field(partition, FETCHED_START)))
                w.length(-1 if aborted is None else 0)
                if version >= 11:
                    w.i32(whole(cairn_field(partition, FETCHED_REPLICA)))
                records = cairn_field(partition, FETCHED_RECORDS)
                if records is None:
                    w.length(-1)
                elif type(records) is list or type(records) is tuple:
                    size = 0
                    for part in records:
                        size += len(part)
                    w.length(size)
                    if size > 0:
                        w.finish().extend(records)
                else:
                    size = len(records)
                    w.length(size)
                    if size > 0:
                        w.finish().append(records)
                w.no_tags()
            w.no_tags()
        w.no_tags()
        return w.finish()
