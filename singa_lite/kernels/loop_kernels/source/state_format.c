/* State of updates, read as float32 and kept in fewer bits, with the very bits of NumPy's kernels.
 *
 * 16 bits: bits of the number and the key of the update, mixed, are the chance by which it is rounded up. So neither
 * pieces nor threads matter. 8 bits: each block is divided by its largest magnitude, and a quotient's code is found
 * in a table by its upper half, and told apart from the next code by its lower one. */
#include "state_format.h"

#include <float.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

Format format_of(int64_t rows, int64_t columns, int64_t bits) {
    if (bits != 8)
        return (Format){bits, rows, columns, BLOCK, quotient_up(rows * columns, BLOCK), rows, 0};
    int64_t chunks = columns <= BLOCK ? 1 : quotient_up(columns, BLOCK);
    int64_t group_rows = columns <= BLOCK ? BLOCK / columns : 1;
    int64_t elements = columns <= BLOCK ? group_rows * columns : quotient_up(columns, chunks);
    return (Format){bits, rows, columns, elements, chunks, group_rows, quotient_up(chunks * (4 + elements), 4) * 4};
}

int64_t parts_of(const Format *format) { return quotient_up(format->rows, format->group_rows) * format->chunks; }

Part part_of(const Format *format, int64_t number) {
    int64_t group = number / format->chunks, chunk = number % format->chunks;
    int64_t first = group * format->group_rows, rows = least(format->group_rows, format->rows - first);
    int64_t before = chunk * format->elements, left = rows * format->columns - before;
    int64_t count = left < 0 ? 0 : least(format->elements, left);
    return (Part){group, chunk, first * format->columns + before, count};
}

/* A number of 32 bits, spread over all of them. */
static uint32_t rounding_key(int64_t t, int64_t place) {
    uint64_t mixed = (2 * (uint64_t)t + (uint64_t)place + 1) * 0x9E3779B97F4A7C15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    return (uint32_t)((mixed ^ (mixed >> 27)) >> 32);
}

static void round_by_chance(const float *from, uint16_t *to, int64_t count, uint32_t key) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        to[i] = rounded_by_chance(from[i], key);
}

/* The largest magnitude, 0 below normal numbers, NaN where one is not finite. */
static float scale_of(const float *from, int64_t count) {
    uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = bits_of(from[i]) & ~(1u << 31);
        largest = bits > largest ? bits : largest;
    }
    float scale = number_of(largest);
    return largest >= INFINITE ? NAN : scale < FLT_MIN ? 0 : scale;
}

/* Elements that are looked up at a time: their words stay in the first cache. */
#define STEP 256

/* found = table[at]. GCC makes single loads of it, which take four times as long on an Intel Xeon as one of all lanes. */
static void look_up(const uint32_t *table, const uint32_t *at, uint32_t *found, int64_t count) {
    int64_t i = 0;
#ifdef __AVX512F__
    for (; i + 16 <= count; i += 16)
        _mm512_storeu_si512(found + i, _mm512_i32gather_epi32(_mm512_loadu_si512(at + i), (const int *)table, 4));
#endif
    for (; i < count; i++)
        found[i] = table[at[i]];
}

static void decode(const uint8_t *from, float *to, int64_t count, float scale, const Codes *codes) {
    uint32_t words[STEP];
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        words[i] = from[i];
    look_up((const uint32_t *)codes->number, words, words, count);
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        to[i] = number_of(words[i]) * scale;
}

static void encode(const float *from, uint8_t *to, int64_t count, float scale, const Codes *codes) {
    uint32_t nearest[STEP], found[STEP];
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = bits_of(from[i] / scale), size = bits & ~(1u << 31), sign = bits >> 31;
        uint32_t bounded = size < LEAST_HALF << 16 ? (LEAST_HALF << 16) - (size == 0) : size;
        bounded = bounded > ONE_HALF << 16 ? ONE_HALF << 16 : bounded;
        nearest[i] = sign << 31 | bounded;
        found[i] = sign * HALVES + (bounded >> 16) - LEAST_HALF + 1;
    }
    look_up(codes->code[0], found, found, count);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        uint32_t is_next = (nearest[i] & 0xffff) > (found[i] & 0xffff);
        to[i] = (uint8_t)((found[i] >> 16) + (nearest[i] >> 31 ? 0u - is_next : is_next));
    }
}

float *read_state(void *state, const Format *format, const Part *part, const Codes *codes, float *buffer) {
    if (format->bits == 32)
        return (float *)state + part->start;
    if (format->bits == 16) {
        const uint16_t *from = (const uint16_t *)state + part->start;
#pragma omp simd
        for (int64_t i = 0; i < part->count; i++)
            buffer[i] = widened(from[i]);
        return buffer;
    }
    const uint8_t *group = (const uint8_t *)state + part->group * format->group_bytes;
    const uint8_t *from = group + 4 * format->chunks + part->chunk * format->elements;
    float scale = ((const float *)group)[part->chunk];
    for (int64_t i = 0; i < part->count; i += STEP)
        decode(from + i, buffer + i, least(STEP, part->count - i), scale, codes);
    return buffer;
}

void write_state(void *state, const Format *format, const Part *part, const Codes *codes, int64_t t, int64_t place,
                 float *buffer) {
    if (format->bits == 32)
        return;
    if (format->bits == 16) {
        round_by_chance(buffer, (uint16_t *)state + part->start, part->count, rounding_key(t, place));
        return;
    }
    uint8_t *group = (uint8_t *)state + part->group * format->group_bytes;
    uint8_t *to = group + 4 * format->chunks + part->chunk * format->elements;
    float scale = scale_of(buffer, part->count);
    ((float *)group)[part->chunk] = scale;
    memset(buffer + part->count, 0, (size_t)(format->elements - part->count) * sizeof(float));
    if (isnan(scale))
        memset(to, 255, (size_t)format->elements);
    else
        for (int64_t i = 0; i < format->elements; i += STEP)
            encode(buffer + i, to + i, least(STEP, format->elements - i), scale < FLT_MIN ? FLT_MIN : scale, codes);
}
