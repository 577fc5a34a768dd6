# CRC-32C for kernels: the processor's instruction where there is one, else the crc32c package. Included, not imported.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    #define CAIRN_LANE 256

    static uint32_t cairn_shift[4][256];

    /* The instruction has a latency of three cycles and starts once per cycle, so three lanes run side by side. A
       checksum is linear: cairn_shift says what CAIRN_LANE bytes of zeros make of each byte of a state, which puts the
       lanes together again. */
    __attribute__((target("sse4.2")))
    static uint32_t cairn_crc32c(const uint8_t *p, size_t n, uint32_t value) {
        uint64_t a = (uint32_t)~value, b, c, x, y, z;
        size_t i;
        while (n >= 3 * CAIRN_LANE) {
            b = c = 0;
            for (i = 0; i < CAIRN_LANE; i += 8) {
                memcpy(&x, p + i, 8);
                memcpy(&y, p + CAIRN_LANE + i, 8);
                memcpy(&z, p + 2 * CAIRN_LANE + i, 8);
                a = __builtin_ia32_crc32di(a, x);
                b = __builtin_ia32_crc32di(b, y);
                c = __builtin_ia32_crc32di(c, z);
            }
            b ^= cairn_shift[0][a & 255] ^ cairn_shift[1][a >> 8 & 255]
               ^ cairn_shift[2][a >> 16 & 255] ^ cairn_shift[3][a >> 24 & 255];
            a = c ^ cairn_shift[0][b & 255] ^ cairn_shift[1][b >> 8 & 255]
                  ^ cairn_shift[2][b >> 16 & 255] ^ cairn_shift[3][b >> 24 & 255];
            p += 3 * CAIRN_LANE;
            n -= 3 * CAIRN_LANE;
        }
        while (n >= 8) {
            memcpy(&x, p, 8);
            a = __builtin_ia32_crc32di(a, x);
            p += 8;
            n -= 8;
        }
        while (n) {
            a = __builtin_ia32_crc32qi((uint32_t)a, *p++);
            n--;
        }
        return ~(uint32_t)a;
    }

    __attribute__((target("sse4.2")))
    static int cairn_crc32c_begin(void) {
        int part, byte, i;
        __builtin_cpu_init();
        if (!__builtin_cpu_supports("sse4.2"))
            return 0;
        for (part = 0; part < 4; part++)
            for (byte = 0; byte < 256; byte++) {
                uint64_t state = (uint64_t)byte << 8 * part;
                for (i = 0; i < CAIRN_LANE; i += 8)
                    state = __builtin_ia32_crc32di(state, 0);
                cairn_shift[part][byte] = (uint32_t)state;
            }
        return 1;
    }
    #else
    static int cairn_crc32c_begin(void) { return 0; }
    static uint32_t cairn_crc32c(const uint8_t *p, size_t n, uint32_t value) { (void)p; (void)n; return value; }
    #endif

    static inline uint16_t cairn_u16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
    static inline uint32_t cairn_u32(const uint8_t *p) {
        return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }
    static inline uint64_t cairn_u64(const uint8_t *p) { return (uint64_t)cairn_u32(p) << 32 | cairn_u32(p + 4); }
    static inline void cairn_put32(uint8_t *p, uint32_t v) {
        p[0] = (uint8_t)(v >> 24); p[1] = (uint8_t)(v >> 16); p[2] = (uint8_t)(v >> 8); p[3] = (uint8_t)v;
    }
    static inline void cairn_put64(uint8_t *p, uint64_t v) {
        cairn_put32(p, (uint32_t)(v >> 32)); cairn_put32(p + 4, (uint32_t)v);
    }
    """
    bint cairn_crc32c_begin() noexcept
    uint32_t cairn_crc32c(const uint8_t* p, size_t n, uint32_t value) noexcept nogil
    uint16_t cairn_u16(const uint8_t* p) noexcept
    uint32_t cairn_u32(const uint8_t* p) noexcept
    uint64_t cairn_u64(const uint8_t* p) noexcept
    void cairn_put32(uint8_t* p, uint32_t v) noexcept
    void cairn_put64(uint8_t* p, uint64_t v) noexcept

cdef bint _by_instruction = cairn_crc32c_begin()
cdef object _package_crc32c = None
if not _by_instruction:
    import crc32c as _package

    _package_crc32c = _package.crc32c


cdef inline uint32_t checksum(const uint8_t* data, Py_ssize_t size, uint32_t value) except? 0:
    if _by_instruction:
        return cairn_crc32c(data, size, value)
    return _package_crc32c(PyMemoryView_FromMemory(<char*>data, size, PyBUF_READ), value)
