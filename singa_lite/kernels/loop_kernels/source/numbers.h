/* Numbers as they lie in memory: float32 and bfloat16, whole rows of them at a time. */
#ifndef NUMBERS_H
#define NUMBERS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Columns that are read, computed and written at a time: their float32 copies stay in the first cache. */
#define CHUNK 512
/* Work of fewer elements than this is done by the calling thread alone: waking the others takes longer. */
#define SMALL (1 << 15)

/* Rows of a matrix. at: the first element, NULL for an operand that is left out; pitch: elements from one row to the
 * next; is_narrow: 1 for bfloat16, 0 for float32. */
typedef struct {
    void *at;
    int64_t pitch;
    int64_t is_narrow;
} Rows;

#define INLINE static inline __attribute__((always_inline))

/* Axes of a box, the outermost first. Those that a tensor lacks have one element. */
#define AXES 6

typedef struct {
    int64_t of[AXES];
} Extents;

/* Of the elements of a box. UNIFORM: random numbers in [0, 1) of the key that lies there, by their place. */
enum { FLOAT32, BFLOAT16, BOOL, UNIFORM };

/* A tensor of any strides: elements from one to the next along each axis, 0 where it is the same all along it. at:
 * NULL for an operand that is left out. */
typedef struct {
    void *at;
    int64_t steps[AXES];
    int64_t type;
} Box;

static inline int is_half(Box x) { return x.type == BFLOAT16; }

/* Lines of a box: rows along the last axis. */
static inline int64_t line_count(Extents extents) {
    int64_t lines = 1;
    for (int axis = 0; axis < AXES - 1; axis++)
        lines *= extents.of[axis];
    return lines;
}

/* Where a line begins, in elements. */
static inline int64_t line_start(Box box, Extents extents, int64_t line) {
    int64_t start = 0;
    for (int axis = AXES - 2; axis >= 0 && line; axis--) {
        if (extents.of[axis] == 1)
            continue;
        start += line % extents.of[axis] * box.steps[axis];
        line /= extents.of[axis];
    }
    return start;
}

/* Where an element is, in the order of the axes, in elements. */
static inline int64_t place(Box box, Extents extents, int64_t number) {
    int64_t last = extents.of[AXES - 1], step = box.steps[AXES - 1];
    return number < last ? number * step : line_start(box, extents, number / last) + number % last * step;
}

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* a / b, rounded up. */
static inline int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static inline uint32_t bits_of(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

static inline float number_of(uint32_t bits) {
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* bfloat16 is the upper half of float32. */
static inline float widened(uint16_t half) { return number_of((uint32_t)half << 16); }

/* To the nearest, to even in between; NaN stays NaN. */
static inline uint16_t narrowed(float number) {
    uint32_t bits = bits_of(number), rounded = bits + 0x7fff + ((bits >> 16) & 1);
    return (uint16_t)((number == number ? rounded : bits | 0x400000) >> 16);
}

/* Element `i` of an operand of float32, or of bfloat16 where it is narrow. */
static inline float element(const void *at, int64_t is_narrow, int64_t i) {
    return is_narrow ? widened(((const uint16_t *)at)[i]) : ((const float *)at)[i];
}

static inline void set_element(void *at, int64_t is_narrow, int64_t i, float value) {
    if (is_narrow)
        ((uint16_t *)at)[i] = narrowed(value);
    else
        ((float *)at)[i] = value;
}

/* Whether a number of any type is 0: of up to 8 bytes, a float of either sign. */
static inline int is_zero(const void *at, int64_t bytes, int64_t is_float) {
    uint64_t number = 0;
    memcpy(&number, at, bytes);
    return (is_float ? number << (65 - 8 * bytes) : number) == 0;
}

/* Where `count` elements of a row are in float32: in place, or widened into the buffer. */
static inline const float *read_chunk(Rows rows, int64_t row, int64_t column, int64_t count, float *buffer) {
    int64_t start = row * rows.pitch + column;
    if (!rows.is_narrow)
        return (const float *)rows.at + start;
    const uint16_t *from = (const uint16_t *)rows.at + start;
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        buffer[i] = widened(from[i]);
    return buffer;
}

/* Where `count` results in float32 are put: in place, or into the buffer, which `write_chunk` rounds. */
static inline float *target_chunk(Rows rows, int64_t row, int64_t column, float *buffer) {
    return rows.is_narrow ? buffer : (float *)rows.at + row * rows.pitch + column;
}

static inline void write_chunk(Rows rows, int64_t row, int64_t column, int64_t count, const float *buffer) {
    if (!rows.is_narrow)
        return;
    uint16_t *to = (uint16_t *)rows.at + row * rows.pitch + column;
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        to[i] = narrowed(buffer[i]);
}

#endif
