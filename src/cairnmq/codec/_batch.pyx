# cython: language_level=3, boundscheck=False, wraparound=False
"""Kernel of batch.py: where the whole batches of a piece of a segment file end."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from cairnmq.codec.batch import whole_batches as _whole_batches

cdef enum:
    HEADER_SIZE = 61
    MAGIC = 2


cdef inline int64_t number(const uint8_t* p, int size) noexcept:
    cdef uint64_t value = 0
    cdef int i
    for i in range(size):
        value = value << 8 | p[i]
    return <int64_t>value if size == 8 else <int64_t><int32_t>value


def whole_batches(data, Py_ssize_t max_bytes, int64_t limit):
    cdef Py_buffer buffer
    cdef const uint8_t* p
    cdef Py_ssize_t at = 0, room
    cdef int64_t size, base, next_offset = 0
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        room = min(buffer.len, max_bytes)
        while room - at >= HEADER_SIZE and next_offset < limit:
            p = <const uint8_t*>buffer.buf + at
            base = number(p, 8)
            size = number(p + 8, 4) + 12
            if size < HEADER_SIZE or size > room - at or base >= limit or p[16] != MAGIC:
                break
            if not -(<int64_t>1 << 62) < base < <int64_t>1 << 62:
                return _whole_batches(data, max_bytes, limit)  # offsets that may not fit, as only damage makes them
            next_offset = base + number(p + 23, 4) + 1
            at += size
        return at, next_offset
    finally:
        PyBuffer_Release(&buffer)
