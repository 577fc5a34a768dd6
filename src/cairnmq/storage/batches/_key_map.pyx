# cython: language_level=3, boundscheck=False, wraparound=False
"""Kernel of key_map.py: records walked and keys hashed without a Python object for any of them."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from cairnmq.codec.compression import Undecodable

cdef extern from *:
    """
    #include <stdint.h>
    #include <stddef.h>
    #include <string.h>

    typedef struct { uint64_t a, b; int64_t offset; } cairn_slot;  /* offset -1: free */

    #define CAIRN_ROTL(x, n) (((x) << (n)) | ((x) >> (64 - (n))))
    #define CAIRN_SIP \
        v0 += v1; v1 = CAIRN_ROTL(v1, 13); v1 ^= v0; v0 = CAIRN_ROTL(v0, 32); \
        v2 += v3; v3 = CAIRN_ROTL(v3, 16); v3 ^= v2; \
        v0 += v3; v3 = CAIRN_ROTL(v3, 21); v3 ^= v0; \
        v2 += v1; v1 = CAIRN_ROTL(v1, 17); v1 ^= v2; v2 = CAIRN_ROTL(v2, 32);

    /* SipHash-2-4 with 128 bits of output. */
    static void cairn_sip(const uint8_t *p, size_t n, uint64_t k0, uint64_t k1, uint64_t *a, uint64_t *b) {
        uint64_t v0 = 0x736f6d6570736575ULL ^ k0, v1 = 0x646f72616e646f6dULL ^ k1 ^ 0xee;
        uint64_t v2 = 0x6c7967656e657261ULL ^ k0, v3 = 0x7465646279746573ULL ^ k1, m, last = (uint64_t)n << 56;
        size_t i;
        for (; n >= 8; n -= 8, p += 8) {
            memcpy(&m, p, 8);
            v3 ^= m; CAIRN_SIP CAIRN_SIP v0 ^= m;
        }
        for (i = 0; i < n; i++)
            last |= (uint64_t)p[i] << 8 * i;
        v3 ^= last; CAIRN_SIP CAIRN_SIP v0 ^= last;
        v2 ^= 0xee;
        CAIRN_SIP CAIRN_SIP CAIRN_SIP CAIRN_SIP
        *a = v0 ^ v1 ^ v2 ^ v3;
        v1 ^= 0xdd;
        CAIRN_SIP CAIRN_SIP CAIRN_SIP CAIRN_SIP
        *b = v0 ^ v1 ^ v2 ^ v3;
    }

    typedef struct {
        const uint8_t *start, *end, *key;
        int64_t time_delta, delta, key_size, value_size;
    } cairn_record;

    /* A zigzag varint; 0 if it does not end before `end` or has more than 64 bits. */
    static const uint8_t *cairn_varint(const uint8_t *p, const uint8_t *end, int64_t *number) {
        uint64_t found = 0;
        int shift;
        for (shift = 0; shift < 64 && p < end; shift += 7) {
            uint8_t byte = *p++;
            if (shift == 63 && byte > 1)
                return NULL;
            found |= (uint64_t)(byte & 0x7f) << shift;
            if (byte < 0x80) {
                *number = (int64_t)(found >> 1) ^ -(int64_t)(found & 1);
                return p;
            }
        }
        return NULL;
    }

    /* The record at `p`, or 0 if there is none that is sound. */
    static int cairn_read_record(const uint8_t *p, const uint8_t *body_end, int64_t before, int64_t last,
                                 cairn_record *r) {
        int64_t size;
        r->start = p;
        if (!(p = cairn_varint(p, body_end, &size)) || size < 1 || size > body_end - p)
            return 0;
        r->end = p + size;
        if (!(p = cairn_varint(p + 1, r->end, &r->time_delta)) || !(p = cairn_varint(p, r->end, &r->delta)))
            return 0;
        if (r->delta <= before || r->delta > last)
            return 0;
        if (!(p = cairn_varint(p, r->end, &r->key_size)))
            return 0;
        r->key = p;
        if (r->key_size > 0) {
            if (r->key_size >= r->end - p)
                return 0;
            p += r->key_size;
        }
        if (!(p = cairn_varint(p, r->end, &r->value_size)))
            return 0;
        return r->value_size <= 0 || r->value_size <= r->end - p;
    }
    """
    ctypedef struct cairn_slot:
        uint64_t a
        uint64_t b
        int64_t offset
    ctypedef struct cairn_record:
        const uint8_t* start
        const uint8_t* end
        const uint8_t* key
        int64_t time_delta
        int64_t delta
        int64_t key_size
        int64_t value_size
    void cairn_sip(const uint8_t* p, size_t n, uint64_t k0, uint64_t k1, uint64_t* a, uint64_t* b) noexcept
    bint cairn_read_record(
        const uint8_t* p, const uint8_t* body_end, int64_t before, int64_t last, cairn_record* r
    ) noexcept

cdef enum:
    SLOTS_FIRST = 1024


cdef int check(const uint8_t* p, Py_ssize_t size, int64_t count, int64_t last) except -1:
    cdef const uint8_t* end = p + size
    cdef cairn_record record
    cdef int64_t before = -1
    while count > 0:
        if not cairn_read_record(p, end, before, last, &record):
            raise Undecodable("its records do not read back")
        before, p = record.delta, record.end
        count -= 1
    if p != end:
        raise Undecodable(f"{end - p} bytes follow the last of its records")
    return 0


cdef class KeyMap:
    cdef cairn_slot* slots
    cdef uint64_t size, held, k0, k1
    cdef readonly object limit

    def __cinit__(self, limit, seed):
        cdef bytes raw = bytes(seed)
        if len(raw) != 16:
            raise ValueError("a seed has 16 bytes")
        self.limit = limit
        self.k0 = int.from_bytes(raw[:8], "little")
        self.k1 = int.from_bytes(raw[8:], "little")
        self.slots = NULL
        self.size = self.held = 0
        self.grow(SLOTS_FIRST)

    def __dealloc__(self):
        free(self.slots)

    @property
    def count(self):
        return self.held

    cdef int grow(self, uint64_t size) except -1:
        cdef cairn_slot* old = self.slots
        cdef uint64_t i, old_size = self.size
        cdef cairn_slot* slots = <cairn_slot*>calloc(size, sizeof(cairn_slot))
        if slots == NULL:
            raise MemoryError
        for i in range(size):
            slots[i].offset = -1
        self.slots, self.size = slots, size
        for i in range(old_size):
            if old[i].offset >= 0:
                self.place(old[i].a, old[i].b)[0] = old[i]
        free(old)
        return 0

    cdef cairn_slot* place(self, uint64_t a, uint64_t b) noexcept:
        cdef uint64_t at = a & (self.size - 1)
        cdef cairn_slot* slot
        while True:
            slot = self.slots + at
            if slot.offset < 0 or (slot.a == a and slot.b == b):
                return slot
            at = (at + 1) & (self.size - 1)

    cdef cairn_slot* find(self, const uint8_t* key, int64_t size, uint64_t* a, uint64_t* b) noexcept:
        cairn_sip(key, size, self.k0, self.k1, a, b)
        return self.place(a[0], b[0])

    def note(self, body, int64_t count, int64_t last_delta, int64_t base_offset):
        cdef Py_buffer buffer
        cdef const uint8_t* p
        cdef const uint8_t* end
        cdef cairn_record record
        cdef cairn_slot* slot
        cdef uint64_t a = 0, b = 0
        cdef int64_t before = -1
        if base_offset < 0:
            raise OverflowError("an offset is not negative")
        PyObject_GetBuffer(body, &buffer, PyBUF_SIMPLE)
        try:
            p = <const uint8_t*>buffer.buf
            end = p + buffer.len
            check(p, buffer.len, count, last_delta)
            while count > 0:
                cairn_read_record(p, end, before, last_delta, &record)
                before, p = record.delta, record.end
                count -= 1
                if record.key_size < 0:
                    continue
                if 4 * self.held >= 3 * self.size:
                    self.grow(2 * self.size)
                slot = self.find(record.key, record.key_size, &a, &b)
                if slot.offset < 0:
                    self.held += 1
                    slot.a, slot.b = a, b
                slot.offset = base_offset + record.delta
        finally:
            PyBuffer_Release(&buffer)

    def newest(self, bytes key):
        cdef uint64_t a = 0, b = 0
        return self.find(<const uint8_t*>PyBytes_AS_STRING(key), len(key), &a, &b).offset

    def sift(
        self, body, int64_t count, int64_t last_delta, int64_t base_offset, int64_t end_offset, bint keep_tombstones
    ):
        cdef Py_buffer buffer
        cdef const uint8_t* p
        cdef const uint8_t* end
        cdef cairn_record record
        cdef uint64_t a = 0, b = 0
        cdef int64_t before = -1, offset, newest_delta = 0, left = count
        cdef int64_t kept = 0, tombstones = 0, room = 0
        cdef bytes out = None
        cdef char* to = NULL
        PyObject_GetBuffer(body, &buffer, PyBUF_SIMPLE)
        try:
            p = <const uint8_t*>buffer.buf
            end = p + buffer.len
            check(p, buffer.len, count, last_delta)
            out = PyBytes_FromStringAndSize(NULL, buffer.len)
            to = PyBytes_AS_STRING(out)
            while left > 0:
                cairn_read_record(p, end, before, last_delta, &record)
                before, p = record.delta, record.end
                left -= 1
                offset = base_offset + record.delta
                if offset < end_offset and (
                    record.key_size < 0
                    or (record.value_size < 0 and not keep_tombstones)
                    or offset < self.find(record.key, record.key_size, &a, &b).offset
                ):
                    continue
                if not kept or record.time_delta > newest_delta:
                    newest_delta = record.time_delta
                kept += 1
                tombstones += record.value_size < 0
                memcpy(to + room, record.start, record.end - record.start)
                room += record.end - record.start
        finally:
            PyBuffer_Release(&buffer)
        return kept, tombstones, newest_delta, None if kept == count else out[:room]


def keyless(body, int64_t count, int64_t last_delta, int64_t limit):
    cdef Py_buffer buffer
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef cairn_record record
    cdef int64_t before = -1, index = 0
    cdef list found = []
    PyObject_GetBuffer(body, &buffer, PyBUF_SIMPLE)
    try:
        p = <const uint8_t*>buffer.buf
        end = p + buffer.len
        check(p, buffer.len, count, last_delta)
        for index in range(count):
            cairn_read_record(p, end, before, last_delta, &record)
            before, p = record.delta, record.end
            if record.key_size < 0:
                found.append(index)
                if len(found) >= limit:
                    break
        return found
    finally:
        PyBuffer_Release(&buffer)


def misdated(body, int64_t count, int64_t last_delta, int64_t low, int64_t high, int64_t undated, int64_t limit):
    cdef Py_buffer buffer
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef cairn_record record
    cdef int64_t before = -1, index = 0
    cdef list found = []
    PyObject_GetBuffer(body, &buffer, PyBUF_SIMPLE)
    try:
        p = <const uint8_t*>buffer.buf
        end = p + buffer.len
        check(p, buffer.len, count, last_delta)
        for index in range(count):
            cairn_read_record(p, end, before, last_delta, &record)
            before, p = record.delta, record.end
            if (record.time_delta < low or record.time_delta > high) and record.time_delta != undated:
                found.append((index, record.time_delta))
                if len(found) >= limit:
                    break
        return found
    finally:
        PyBuffer_Release(&buffer)
