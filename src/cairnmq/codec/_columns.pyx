# cython: language_level=3, boundscheck=False, wraparound=False
"""Kernel of columns.py: records copied straight into column buffers, without a Python object for any of them."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from cairnmq.codec.columns import append as _append

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>

    #define CAIRN_MILLIS_MAX (INT64_MAX / 1000)

    typedef struct {
        const uint8_t *key, *value, *headers, *end;
        int64_t offset, micros;
        int32_t key_size, value_size, header_count;
    } cairn_span;

    /* A zigzag varint of 64 bits; NULL if it is cut off or has more. */
    static inline const uint8_t *cairn_number(const uint8_t *p, const uint8_t *end, int64_t *number) {
        uint64_t found = 0;
        int shift;
        if (p < end && *p < 0x80) {
            *number = (int64_t)(*p >> 1) ^ -(int64_t)(*p & 1);
            return p + 1;
        }
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

    /* A length (-1: null, any other negative one too) and where its bytes begin; gives where they end. */
    static inline const uint8_t *cairn_bytes(const uint8_t *p, const uint8_t *end, const uint8_t **start,
                                             int32_t *size) {
        int64_t found;
        if (!(p = cairn_number(p, end, &found)) || found > end - p)
            return NULL;
        *start = p;
        *size = found < 0 ? -1 : (int32_t)found;
        return found < 0 ? p : p + found;
    }

    /* All records of a body, none of them copied; 0 if anything is odd, so that the twin says what. Names of headers
       that are not ASCII are odd. */
    static int cairn_spans(const uint8_t *p, const uint8_t *body_end, int64_t count, int64_t base_offset,
                           int64_t last_delta, int64_t base_timestamp, int has_append_time, int64_t append_time,
                           int looks_at_headers, cairn_span *span) {
        for (; count > 0; count--, span++) {
            int64_t size, time, delta, headers, i;
            const uint8_t *end;
            if (!(p = cairn_number(p, body_end, &size)) || size < 1 || size > body_end - p)
                return 0;
            end = p + size;
            if (!(p = cairn_number(p + 1, end, &time)) || !(p = cairn_number(p, end, &delta)))
                return 0;
            if (delta < 0 || delta > last_delta)
                return 0;
            if (!(p = cairn_bytes(p, end, &span->key, &span->key_size)))
                return 0;
            if (!(p = cairn_bytes(p, end, &span->value, &span->value_size)))
                return 0;
            if (!(p = cairn_number(p, end, &headers)) || headers < 0 || headers > end - p)
                return 0;
            span->headers = p;
            span->header_count = (int32_t)headers;
            for (i = 0; i < headers; i++) {
                const uint8_t *start;
                int32_t length, j;
                if (!(p = cairn_bytes(p, end, &start, &length)) || length < 0)
                    return 0;
                if (looks_at_headers)
                    for (j = 0; j < length; j++)
                        if (start[j] & 0x80)
                            return 0;
                if (!(p = cairn_bytes(p, end, &start, &length)))
                    return 0;
            }
            if (p != end)
                return 0;
            span->end = end;
            span->offset = base_offset + delta;
            if (has_append_time)
                time = append_time;
            else if (__builtin_add_overflow(base_timestamp, time, &time))
                return 0;
            if (time > CAIRN_MILLIS_MAX)
                time = CAIRN_MILLIS_MAX;
            if (time < -CAIRN_MILLIS_MAX)
                time = -CAIRN_MILLIS_MAX;
            span->micros = time * 1000;
        }
        return p == body_end;
    }
    """
    ctypedef struct cairn_span:
        const uint8_t* key
        const uint8_t* value
        const uint8_t* headers
        const uint8_t* end
        int64_t offset
        int64_t micros
        int32_t key_size
        int32_t value_size
        int32_t header_count
    const uint8_t* cairn_bytes(
        const uint8_t* p, const uint8_t* end, const uint8_t** start, int32_t* size
    ) noexcept
    bint cairn_spans(
        const uint8_t* p, const uint8_t* body_end, int64_t count, int64_t base_offset, int64_t last_delta,
        int64_t base_timestamp, bint has_append_time, int64_t append_time, bint looks_at_headers, cairn_span* span
    ) noexcept

cdef enum:
    APPEND_TIME_BIT = 0x08
    RECORD_BYTES_MIN = 7
    BYTES_MAX = 0x7fffffff


cdef uint8_t* grown(bytearray column, Py_ssize_t by) except NULL:
    """Makes room; gives where it begins."""
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(column)
    PyByteArray_Resize(column, before + by)
    return <uint8_t*>PyByteArray_AS_STRING(column) + before


cdef uint8_t* grown_bits(bytearray bits, int64_t rows, int64_t more) except NULL:
    """Makes room for bits that are 0; gives where all of them begin."""
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(bits), size = (rows + more + 7) >> 3
    PyByteArray_Resize(bits, size)
    memset(PyByteArray_AS_STRING(bits) + before, 0, size - before)
    return <uint8_t*>PyByteArray_AS_STRING(bits)


cdef class Filler:
    """Where the next value of a binary column goes. Its buffers keep their size while it is in use."""
    cdef int32_t* ends
    cdef uint8_t* data
    cdef uint8_t* bits
    cdef int64_t row, nulls, filled

    @staticmethod
    cdef Filler of(column, int64_t row, int64_t rows, int64_t size):
        cdef Filler filler = Filler.__new__(Filler)
        filler.filled = PyByteArray_GET_SIZE(column.data)
        if filler.filled + size > BYTES_MAX:
            raise OverflowError("a column holds at most 2 GiB")
        filler.ends = <int32_t*>grown(column.ends, 4 * rows)
        filler.data = grown(column.data, size)
        filler.bits = grown_bits(column.valid, row, rows)
        filler.row = row
        filler.nulls = 0
        return filler

    cdef inline void put(self, const uint8_t* start, int32_t size) noexcept:
        if size < 0:
            self.nulls += 1
        else:
            memcpy(self.data, start, size)
            self.data += size
            self.filled += size
            self.bits[self.row >> 3] |= <uint8_t>(1 << (self.row & 7))
        self.ends[0] = <int32_t>self.filled
        self.ends += 1
        self.row += 1


cdef int fill_bytes(column, const cairn_span* spans, int64_t kept, int64_t row, bint keys) except -1:
    cdef int64_t i, size = 0
    for i in range(kept):
        size += max(0, spans[i].key_size if keys else spans[i].value_size)
    cdef Filler filler = Filler.of(column, row, kept, size)
    for i in range(kept):
        if keys:
            filler.put(spans[i].key, spans[i].key_size)
        else:
            filler.put(spans[i].value, spans[i].value_size)
    column.nulls += filler.nulls
    return 0


cdef int fill_headers(column, const cairn_span* spans, int64_t kept, int64_t row) except -1:
    cdef int64_t i, j, count = 0, size = 0, rows = column.rows, nulls = 0
    cdef const uint8_t* p
    cdef const uint8_t* start
    cdef int32_t length = 0
    for i in range(kept):
        count += spans[i].header_count
        size += spans[i].end - spans[i].headers  # names and values cannot have more
    cdef int32_t* ends = <int32_t*>grown(column.ends, 4 * kept)
    cdef uint8_t* bits = grown_bits(column.valid, row, kept)
    cdef Filler names = Filler.of(column.names, rows, count, size)
    cdef Filler values = Filler.of(column.values, rows, count, size)
    for i in range(kept):
        p = spans[i].headers
        for j in range(spans[i].header_count):
            p = cairn_bytes(p, spans[i].end, &start, &length)
            names.put(start, length)
            p = cairn_bytes(p, spans[i].end, &start, &length)
            values.put(start, length)
        rows += spans[i].header_count
        ends[i] = <int32_t>rows
        if spans[i].header_count:
            bits[(row + i) >> 3] |= <uint8_t>(1 << ((row + i) & 7))
        else:
            nulls += 1
    PyByteArray_Resize(column.names.data, names.filled)
    PyByteArray_Resize(column.values.data, values.filled)
    column.values.nulls += values.nulls
    column.nulls += nulls
    column.rows = rows
    return 0


def append(columns, header, body, int64_t low, int64_t high):
    cdef Py_buffer buffer
    cdef cairn_span* spans = NULL
    cdef int64_t count = header.count, kept = 0, row = columns.rows, i
    cdef bint append_time = (header.attributes & APPEND_TIME_BIT) != 0, sound = False
    cdef int64_t* offsets
    cdef int64_t* timestamps
    cdef int32_t* types
    PyObject_GetBuffer(body, &buffer, PyBUF_SIMPLE)
    try:
        if 0 <= count <= buffer.len // RECORD_BYTES_MIN and 0 <= header.base_offset < <int64_t>1 << 62:
            spans = <cairn_span*>malloc((count + 1) * sizeof(cairn_span))
            if spans == NULL:
                raise MemoryError
            sound = cairn_spans(
                <const uint8_t*>buffer.buf, <const uint8_t*>buffer.buf + buffer.len, count, header.base_offset,
                header.last_offset_delta, header.base_timestamp, append_time, header.max_timestamp,
                columns.headers is not None, spans
            )
        if not sound:
            return _append(columns, header, body, low, high)
        for i in range(count):
            if low <= spans[i].offset < high:
                spans[kept] = spans[i]
                kept += 1
        offsets = <int64_t*>grown(columns.offsets, 8 * kept)
        timestamps = <int64_t*>grown(columns.timestamps, 8 * kept)
        types = <int32_t*>grown(columns.types, 4 * kept)
        for i in range(kept):
            offsets[i] = spans[i].offset
            timestamps[i] = spans[i].micros
            types[i] = append_time
        if columns.keys is not None:
            fill_bytes(columns.keys, spans, kept, row, True)
        if columns.values is not None:
            fill_bytes(columns.values, spans, kept, row, False)
        if columns.headers is not None:
            fill_headers(columns.headers, spans, kept, row)
        columns.rows = row + kept
    finally:
        free(spans)
        PyBuffer_Release(&buffer)
