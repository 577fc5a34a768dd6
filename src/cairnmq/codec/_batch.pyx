# cython: language_level=3, boundscheck=False, wraparound=False
"""Kernel of batch.py: where the sound batches of a piece of a segment file or pack end."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from cairnmq.codec.batch import sound_batches as _sound_batches

include "crc32c.pxi"

cdef enum:
    HEADER_SIZE = 61
    CRC_START = 21
    MAGIC = 2


def sound_batches(data, Py_ssize_t max_bytes, int64_t offset, int64_t limit, int32_t epoch):
    cdef Py_buffer buffer
    cdef const uint8_t* p
    cdef Py_ssize_t at = 0, room
    cdef int64_t size, base, last, next_offset = offset
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        room = min(buffer.len, max_bytes)
        while room - at >= HEADER_SIZE and next_offset < limit:
            p = <const uint8_t*>buffer.buf + at
            base = <int64_t>cairn_u64(p)
            if not -(<int64_t>1 << 62) < base < <int64_t>1 << 62:
                return _sound_batches(data, max_bytes, offset, limit, epoch)  # sums may not fit; only damage does this
            size = <int64_t><int32_t>cairn_u32(p + 8) + 12
            last = base + <int32_t>cairn_u32(p + 23)
            if (
                p[16] != MAGIC
                or size < HEADER_SIZE
                or (base != next_offset if at else not base <= offset <= last)
                or (epoch >= 0 and <int32_t>cairn_u32(p + 12) != epoch)
            ):
                return at, next_offset, True, 0
            if size > room - at:
                return at, next_offset, False, size
            if checksum(p + CRC_START, size - CRC_START, 0) != cairn_u32(p + 17):
                return at, next_offset, True, 0
            next_offset = last + 1
            at += size
        return at, next_offset, False, 0
    finally:
        PyBuffer_Release(&buffer)
