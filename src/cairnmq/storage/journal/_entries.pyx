# cython: language_level=3, boundscheck=False, wraparound=False
"""Kernel of entries.py: entries made and read without a Python call per field."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memchr

from cairnmq.storage.files.format import Entry

include "../../codec/crc32c.pxi"

# The layout is that of format.py and codec/batch.py; the tests compare both ways byte by byte.
cdef enum:
    ENTRY_MAGIC = 0xCA1A
    ENTRY_VERSION = 2
    FIRST_VERSION = 1
    BATCH = 1
    SEGMENT = 3
    HEAD_SIZE = 28
    FRAME_SIZE = 32
    LENGTH_MAX = 1 << 30
    BATCH_HEADER_SIZE = 61
    BATCH_CRC_START = 21
    FACT = 2
    SEGMENT_LENGTH = 28
    SEGMENT_LENGTH_1 = 16
    QUEUE_ID_BITS = 48
    UNKNOWN_REQUIRED = 0xFE
    LOOSE_FACT_MAX = 64 << 10
    FREE_FACT_MAX = 256


cdef uint64_t QUEUE_ID_MAX = (<uint64_t>1 << QUEUE_ID_BITS) - 1


def seal_batch(
    batch, int64_t offset, int32_t epoch, uint64_t queue_id, uint64_t synced, uint32_t seed, uint16_t flags
):
    cdef Py_buffer buffer
    cdef uint8_t frame[FRAME_SIZE]
    cdef uint8_t* data
    cdef uint32_t crc
    if epoch < 0:
        raise OverflowError("an epoch is not negative")
    if queue_id > QUEUE_ID_MAX:
        raise OverflowError("queue id does not fit into 48 bits")
    PyObject_GetBuffer(batch, &buffer, PyBUF_WRITABLE)
    try:
        if buffer.len < BATCH_HEADER_SIZE or buffer.len > LENGTH_MAX:
            raise ValueError("no batch has this size")
        data = <uint8_t*>buffer.buf
        cairn_put64(data, <uint64_t>offset)
        cairn_put32(data + 12, <uint32_t>epoch)
        frame[0] = ENTRY_MAGIC >> 8
        frame[1] = ENTRY_MAGIC & 0xFF
        frame[2] = ENTRY_VERSION
        frame[3] = BATCH
        cairn_put32(frame + 4, <uint32_t>buffer.len)
        cairn_put32(frame + 8, <uint32_t>epoch)
        cairn_put64(frame + 12, <uint64_t>flags << QUEUE_ID_BITS | queue_id)
        cairn_put64(frame + 20, synced)
        crc = checksum(frame, HEAD_SIZE, seed)
        cairn_put32(frame + HEAD_SIZE, checksum(data, BATCH_CRC_START, crc))
        return PyBytes_FromStringAndSize(<char*>frame, FRAME_SIZE)
    finally:
        PyBuffer_Release(&buffer)


cdef inline object last_offset(int64_t base, int32_t delta):
    """Numbers off a disk may be anything; where their sum does not fit, Python's integers hold it."""
    if -(<int64_t>1 << 62) < base < <int64_t>1 << 62:
        return base + delta
    return <object>base + <object>delta


def scan_entries(view, Py_ssize_t at, int64_t origin, uint32_t seed, int64_t limit, Py_ssize_t most):
    cdef Py_buffer buffer
    cdef const uint8_t* frame
    cdef const uint8_t* payload
    cdef Py_ssize_t start
    cdef int64_t length, end, base
    cdef uint64_t word
    cdef uint32_t crc
    cdef uint8_t kind, version
    cdef list found = []
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        if at < 0:
            raise ValueError("a view has no byte before its first")
        while most > 0 and buffer.len - at >= FRAME_SIZE:
            frame = <const uint8_t*>buffer.buf + at
            version = frame[2]
            kind = frame[3]
            length = cairn_u32(frame + 4)
            word = cairn_u64(frame + 12)
            if cairn_u16(frame) != ENTRY_MAGIC or kind < BATCH or kind > SEGMENT:
                break
            # a flag that must be understood and is not ends the scan, as a bad byte does: who scans then looks why
            if version != ENTRY_VERSION and (version != FIRST_VERSION or word > QUEUE_ID_MAX):
                break
            if word >> QUEUE_ID_BITS & UNKNOWN_REQUIRED:
                break
            if length > LENGTH_MAX or length > buffer.len - at - FRAME_SIZE:
                break
            end = origin + at + FRAME_SIZE + length
            if end > limit:
                break
            payload = frame + FRAME_SIZE
            crc = checksum(frame, HEAD_SIZE, 0 if kind == SEGMENT else seed)
            if kind == BATCH:
                if length < BATCH_CRC_START or <int64_t><int32_t>cairn_u32(payload + 8) + 12 != length:
                    break
                if checksum(payload, BATCH_CRC_START, crc) != cairn_u32(frame + HEAD_SIZE):
                    break
                if checksum(payload + BATCH_CRC_START, length - BATCH_CRC_START, 0) != cairn_u32(payload + 17):
                    break
            elif checksum(payload, length, crc) != cairn_u32(frame + HEAD_SIZE):
                break
            start = at + FRAME_SIZE
            if kind == BATCH and length >= BATCH_HEADER_SIZE:
                base = <int64_t>cairn_u64(payload)
                found.append(
                    Entry(
                        origin + at,
                        end,
                        kind,
                        cairn_u32(frame + 8),
                        word & QUEUE_ID_MAX,
                        cairn_u64(frame + 20),
                        view[start : start + length],
                        base,
                        last_offset(base, <int32_t>cairn_u32(payload + 23)),
                        <int32_t>cairn_u32(payload + 12),
                        <int64_t>cairn_u64(payload + 35),
                        <int64_t>cairn_u64(payload + 43),
                        <int16_t>cairn_u16(payload + 51),
                        <int32_t>cairn_u32(payload + 53),
                        <int32_t>cairn_u32(payload + 57),
                        <int16_t>cairn_u16(payload + 21),
                        word >> QUEUE_ID_BITS,
                    )
                )
            else:
                found.append(
                    Entry(
                        origin + at,
                        end,
                        kind,
                        cairn_u32(frame + 8),
                        word & QUEUE_ID_MAX,
                        cairn_u64(frame + 20),
                        view[start : start + length],
                        -1, -1, -1, -1, -1, -1, -1, 0, 0,
                        word >> QUEUE_ID_BITS,
                    )
                )
            at += FRAME_SIZE + length
            most -= 1
        return found, at
    finally:
        PyBuffer_Release(&buffer)


def find_entry(view, Py_ssize_t at, Py_ssize_t until, int64_t origin, uint32_t seed, int64_t credit):
    cdef Py_buffer buffer
    cdef const uint8_t* data
    cdef const uint8_t* frame
    cdef const void* found
    cdef int64_t length, summed
    cdef uint8_t kind
    cdef bint charged
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        if at < 0:
            raise ValueError("a view has no byte before its first")
        data = <const uint8_t*>buffer.buf
        until = min(until, buffer.len - FRAME_SIZE + 1)
        while at < until:
            found = memchr(data + at, ENTRY_MAGIC >> 8, until - at)
            if found == NULL:
                break
            frame = <const uint8_t*>found
            at = frame - data
            at += 1
            kind = frame[3]
            if frame[1] != ENTRY_MAGIC & 0xFF or kind < BATCH or kind > SEGMENT:
                continue
            if frame[2] != ENTRY_VERSION and frame[2] != FIRST_VERSION:
                continue
            at += 3  # the fixed bytes of a head do not hold the beginning of another
            length = summed = cairn_u32(frame + 4)
            if kind == BATCH:
                summed = BATCH_CRC_START
                if length < summed or buffer.len - (frame - data) < FRAME_SIZE + summed:
                    continue
                if <int64_t><int32_t>cairn_u32(frame + FRAME_SIZE + 8) + 12 != length:
                    continue
            elif length != SEGMENT_LENGTH and length != SEGMENT_LENGTH_1 if kind == SEGMENT else length > LOOSE_FACT_MAX:
                continue
            if cairn_u64(frame + 20) > <uint64_t>(origin + (frame - data)):
                continue
            if buffer.len - (frame - data) < FRAME_SIZE + summed:
                continue
            charged = kind == FACT and length > FREE_FACT_MAX
            if charged and length > credit:
                continue
            if checksum(
                frame + FRAME_SIZE, summed, checksum(frame, HEAD_SIZE, 0 if kind == SEGMENT else seed)
            ) == cairn_u32(frame + HEAD_SIZE):
                return frame - data, credit
            if charged:
                credit -= length
        return -1, credit
    finally:
        PyBuffer_Release(&buffer)
