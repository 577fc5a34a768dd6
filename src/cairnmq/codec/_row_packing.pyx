# cython: language_level=3, boundscheck=False, wraparound=False
"""Kernel of row_packing.py: records made straight out of column buffers, without a Python object for any of them."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from cairnmq.codec.row_packing import pack_rows as _pack_rows

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static inline uint64_t cairn_zigzag(int64_t number) {
        return ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    }

    static inline int64_t cairn_number_size(int64_t number) {
        uint64_t left = cairn_zigzag(number);
        int64_t size = 1;
        while (left > 0x7f) {
            left >>= 7;
            size++;
        }
        return size;
    }

    static inline uint8_t *cairn_put_number(uint8_t *p, int64_t number) {
        uint64_t left = cairn_zigzag(number);
        while (left > 0x7f) {
            *p++ = (uint8_t)(left | 0x80);
            left >>= 7;
        }
        *p++ = (uint8_t)left;
        return p;
    }

    /* Null is -1. */
    static inline int64_t cairn_cell_size(int64_t size) {
        return size < 0 ? 1 : cairn_number_size(size) + size;
    }

    static inline uint8_t *cairn_put_cell(uint8_t *p, const uint8_t *start, int64_t size) {
        p = cairn_put_number(p, size);
        if (size > 0) {
            memcpy(p, start, size);
            p += size;
        }
        return p;
    }

    static inline int64_t cairn_millis(int64_t micros) {
        return micros / 1000 - (micros % 1000 < 0);
    }

    /* MurmurHash2 with Kafka's seed: codec/partitioner.py says it in Python. */
    static uint32_t cairn_murmur2(const uint8_t *p, int64_t size) {
        const uint32_t m = 0x5bd1e995u;
        uint32_t state = 0x9747b28cu ^ (uint32_t)size, word;
        int64_t left = size;
        for (; left >= 4; left -= 4, p += 4) {
            word = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
            word *= m;
            word = (word ^ (word >> 24)) * m;
            state = (state * m) ^ word;
        }
        if (left > 0) {
            word = 0;
            while (left-- > 0)
                word = word << 8 | p[left];
            state = (state ^ word) * m;
        }
        state = (state ^ (state >> 13)) * m;
        return state ^ (state >> 15);
    }
    """
    int64_t cairn_number_size(int64_t number) noexcept
    uint8_t* cairn_put_number(uint8_t* p, int64_t number) noexcept
    int64_t cairn_cell_size(int64_t size) noexcept
    uint8_t* cairn_put_cell(uint8_t* p, const uint8_t* start, int64_t size) noexcept
    int64_t cairn_millis(int64_t micros) noexcept
    uint32_t cairn_murmur2(const uint8_t* p, int64_t size) noexcept

ctypedef struct box_t:
    PyObject* body  # held by its PackedRecords
    int64_t held
    int64_t count
    int64_t base_timestamp
    int64_t max_timestamp


cdef class View:
    """A buffer while it is in use, or none of 0 bytes."""
    cdef Py_buffer buffer
    cdef const uint8_t* data
    cdef int64_t size
    cdef bint held

    def __cinit__(self, source):
        if source is not None:
            PyObject_GetBuffer(source, &self.buffer, PyBUF_SIMPLE)
            self.held = True
            self.data = <const uint8_t*>self.buffer.buf
            self.size = self.buffer.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)


cdef class Column:
    """A column of any kind; `rows` of it can be read."""
    cdef View valid, ends, data
    cdef int64_t first, rows

    @staticmethod
    cdef Column of(source, ends, data, int64_t item):
        cdef Column column = Column.__new__(Column)
        column.first = source.first
        column.valid = View(source.valid)
        column.ends = View(ends)
        column.data = View(data)
        column.rows = (column.data.size // item) if ends is None else column.ends.size // 4 - 1
        if column.valid.held:
            column.rows = min(column.rows, column.valid.size * 8)
        column.rows -= column.first
        return column

    cdef inline bint is_null(self, int64_t row) noexcept:
        row += self.first
        return self.valid.held and not (self.valid.data[row >> 3] >> (row & 7)) & 1

    cdef inline int64_t start(self, int64_t row) noexcept:
        return (<const int32_t*>self.ends.data)[self.first + row]

    cdef inline int64_t cell(self, int64_t row, const uint8_t** start) noexcept:
        """Its size; -1 is null, -2 outside of all bytes."""
        cdef int64_t low, high
        if self.is_null(row):
            return -1
        low, high = self.start(row), self.start(row + 1)
        if not 0 <= low <= high <= self.data.size:
            return -2
        start[0] = self.data.data + low
        return high - low


cdef Column cells(source):
    return None if source is None else Column.of(source, source.ends, source.data, 1)


cdef Column numbers(source, int64_t item):
    return None if source is None else Column.of(source, None, source.data, item)


cdef bint has(Column column, int64_t count):
    return column is None or (column.first >= 0 and column.rows >= count)


def pack_rows(rows, int64_t start, list packed, int64_t keyless, int64_t limit, int64_t room):
    cdef int64_t count = rows.count, now_ms = rows.now_ms, partitions = len(packed), row = start, i
    cdef Column keys = cells(rows.keys), values = cells(rows.values)
    cdef Column times = numbers(rows.timestamps, 8), wanted = numbers(rows.partitions, 4)
    cdef Column lists = None, names = None, texts = None
    cdef int64_t key_size, value_size, name_size, text_size, low, high, partition, millis, base, size, whole, before
    cdef const uint8_t* key = NULL
    cdef const uint8_t* value = NULL
    cdef const uint8_t* name = NULL
    cdef const uint8_t* text = NULL
    cdef uint8_t* p
    cdef box_t* boxes
    cdef box_t* box
    cdef bint odd = False
    if rows.headers is not None:
        lists = Column.of(rows.headers, rows.headers.ends, None, 1)
        names, texts = cells(rows.headers.names), cells(rows.headers.values)
    if start < 0 or not (
        has(keys, count) and has(values, count) and has(times, count) and has(wanted, count) and has(lists, count)
    ):
        return _pack_rows(rows, start, packed, keyless, limit, room)
    boxes = <box_t*>calloc(partitions + 1, sizeof(box_t))
    if boxes == NULL:
        raise MemoryError
    try:
        while row < count:
            key_size = -1 if keys is None else keys.cell(row, &key)
            value_size = values.cell(row, &value)
            if wanted is not None and not wanted.is_null(row):
                partition = (<const int32_t*>wanted.data.data)[wanted.first + row]
            elif key_size == -1:
                partition = keyless
            elif partitions and key_size >= 0:
                partition = (cairn_murmur2(key, key_size) & 0x7fffffff) % partitions
            else:
                partition = -1
            if key_size < -1 or value_size < -1 or not 0 <= partition < partitions:
                odd = True
                break
            box = &boxes[partition]
            if box.body == NULL:
                taken = packed[partition]
                box.count = taken.count
                box.base_timestamp = taken.base_timestamp
                box.max_timestamp = taken.max_timestamp
                box.body = <PyObject*>taken.body
            before = PyByteArray_GET_SIZE(<object>box.body)
            millis = now_ms
            if times is not None and not times.is_null(row):
                millis = cairn_millis((<const int64_t*>times.data.data)[times.first + row])
            base = box.base_timestamp if before else millis
            size = 1 + cairn_number_size(millis - base) + cairn_number_size(box.count)
            size += cairn_cell_size(key_size) + cairn_cell_size(value_size)
            low = high = 0
            if lists is not None and not lists.is_null(row):
                low, high = lists.start(row), lists.start(row + 1)
                if not 0 <= low <= high <= min(names.rows, texts.rows):
                    odd = True
                    break
                for i in range(low, high):
                    name_size, text_size = names.cell(i, &name), texts.cell(i, &text)
                    if name_size < 0 or text_size < -1:
                        odd = True
                        break
                    size += cairn_cell_size(name_size) + cairn_cell_size(text_size)
                if odd:
                    break
            size += cairn_number_size(high - low)
            whole = cairn_number_size(size) + size
            if room <= 0 or (before and before + whole > limit):
                break
            if before + whole > box.held:  # twice what is needed, then cut: that moves the bytes seldom
                box.held = 2 * (before + whole)
                PyByteArray_Resize(<object>box.body, box.held)
            PyByteArray_Resize(<object>box.body, before + whole)
            p = <uint8_t*>PyByteArray_AS_STRING(<object>box.body) + before
            p = cairn_put_number(p, size)
            p[0] = 0
            p = cairn_put_number(p + 1, millis - base)
            p = cairn_put_number(p, box.count)
            p = cairn_put_cell(p, key, key_size)
            p = cairn_put_cell(p, value, value_size)
            p = cairn_put_number(p, high - low)
            for i in range(low, high):
                name_size = names.cell(i, &name)
                p = cairn_put_cell(p, name, name_size)
                text_size = texts.cell(i, &text)
                p = cairn_put_cell(p, text, text_size)
            if not before:
                box.base_timestamp = box.max_timestamp = millis
            box.max_timestamp = max(box.max_timestamp, millis)
            box.count += 1
            room -= whole
            row += 1
        for i in range(partitions):
            if boxes[i].body != NULL:
                taken = packed[i]
                taken.count = boxes[i].count
                taken.base_timestamp = boxes[i].base_timestamp
                taken.max_timestamp = boxes[i].max_timestamp
    finally:
        free(boxes)
    return _pack_rows(rows, row, packed, keyless, limit, room) if odd else row
