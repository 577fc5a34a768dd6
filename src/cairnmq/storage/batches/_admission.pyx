# cython: language_level=3, boundscheck=False, wraparound=False
"""Kernel of admission.py: accepts what is plainly good; the twin looks again at the rest, and says why not."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from cairnmq.settings.topic import LogConfig
from cairnmq.storage.batches.admission import admit as _admit

include "../../codec/crc32c.pxi"
include "../../codec/struct_field.pxi"

cdef object Config = LogConfig
cdef Py_ssize_t MAX_MESSAGE_BYTES = cairn_field_place(Config, "max_message_bytes")
cdef Py_ssize_t SEGMENT_BYTES = cairn_field_place(Config, "segment_bytes")
cdef Py_ssize_t APPEND_TIME = cairn_field_place(Config, "append_time")
cdef Py_ssize_t AFTER_MAX_MS = cairn_field_place(Config, "timestamp_after_max_ms")
cdef Py_ssize_t BEFORE_MAX_MS = cairn_field_place(Config, "timestamp_before_max_ms")

# The layout is that of codec/batch.py.
cdef enum:
    HEADER_SIZE = 61
    CRC_START = 21
    MAGIC = 2
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    NO_TIMESTAMP = -1


def admit(batch, config, now_ms):
    cdef Py_buffer buffer
    cdef const uint8_t* data
    cdef int64_t now = now_ms, base_timestamp, max_timestamp, producer_id
    cdef int32_t count, sequence
    cdef int16_t attributes
    if type(config) is not Config:
        return _admit(batch, config, now_ms)
    PyObject_GetBuffer(batch, &buffer, PyBUF_SIMPLE)
    try:
        data = <const uint8_t*>buffer.buf
        if buffer.len < HEADER_SIZE or data[16] != MAGIC or <int64_t><int32_t>cairn_u32(data + 8) + 12 != buffer.len:
            return _admit(batch, config, now_ms)
        if buffer.len > <int64_t>cairn_field(config, MAX_MESSAGE_BYTES):
            return _admit(batch, config, now_ms)
        if buffer.len > <int64_t>cairn_field(config, SEGMENT_BYTES):
            return _admit(batch, config, now_ms)
        attributes = <int16_t>cairn_u16(data + 21)
        base_timestamp = <int64_t>cairn_u64(data + 27)
        max_timestamp = <int64_t>cairn_u64(data + 35)
        producer_id = <int64_t>cairn_u64(data + 43)
        sequence = <int32_t>cairn_u32(data + 53)
        count = <int32_t>cairn_u32(data + 57)
        if count <= 0 or count - 1 != <int32_t>cairn_u32(data + 23) or attributes & CONTROL:
            return _admit(batch, config, now_ms)
        if attributes & TRANSACTIONAL and producer_id < 0:
            return _admit(batch, config, now_ms)
        if producer_id >= 0 and sequence < 0:
            return _admit(batch, config, now_ms)
        if max_timestamp != NO_TIMESTAMP and not cairn_field(config, APPEND_TIME):
            # Differences of these cannot overflow; times that far from now are for the twin.
            if not (0 <= now < <int64_t>1 << 60 and 0 <= base_timestamp and 0 <= max_timestamp < <int64_t>1 << 60):
                return _admit(batch, config, now_ms)
            if max_timestamp - now > <int64_t>cairn_field(config, AFTER_MAX_MS):
                return _admit(batch, config, now_ms)
            if now - base_timestamp > <int64_t>cairn_field(config, BEFORE_MAX_MS):
                return _admit(batch, config, now_ms)
        if checksum(data + CRC_START, buffer.len - CRC_START, 0) != cairn_u32(data + 17):
            return _admit(batch, config, now_ms)
        return attributes, max_timestamp, producer_id, <int16_t>cairn_u16(data + 51), sequence, count
    finally:
        PyBuffer_Release(&buffer)
