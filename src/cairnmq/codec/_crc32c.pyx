# cython: language_level=3
"""Kernel of crc32c.py: the same sum without the package, whose import alone takes megabytes in each process."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

include "crc32c.pxi"

cdef enum:
    LONG = 1 << 16  # bytes that are worth letting other threads run


def crc32c(data, uint32_t value=0):
    cdef Py_buffer buffer
    cdef uint32_t found
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        if _by_instruction and buffer.len >= LONG:
            with nogil:
                found = cairn_crc32c(<const uint8_t*>buffer.buf, buffer.len, value)
            return found
        return checksum(<const uint8_t*>buffer.buf, buffer.len, value)
    finally:
        PyBuffer_Release(&buffer)
