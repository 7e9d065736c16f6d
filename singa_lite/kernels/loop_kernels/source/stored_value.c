/* Values in bfloat16: rounded by chance, or to nearest with what is left over in 8 bits. The bits of a float32 are a
 * whole number here: its upper half, rounded, and a signed byte below it. */
#include "stored_value.h"

#include "philox.h"

#define PLACE 0x9E3779B9u

void round_by_chance(const float *x, const int64_t *count, void *value, int64_t size, int64_t start) {
    uint64_t key[3] = {(uint64_t)count[1], (uint64_t)count[2], (uint64_t)count[0]}, words[4];
    philox(key, 1, words); /* NumPy counts before it draws */
    uint32_t chance = (uint32_t)(words[0] >> 32);
    uint16_t *to = value;
#pragma omp parallel for simd schedule(static) if (parallel : size > SMALL)
    for (int64_t i = 0; i < size; i++)
        to[i] = rounded_by_chance(x[i], chance + (uint32_t)(start + i) * PLACE);
}

void split_error(const float *x, void *value, int8_t *error, int64_t size) {
    uint16_t *to = value;
#pragma omp parallel for simd schedule(static) if (parallel : size > SMALL)
    for (int64_t i = 0; i < size; i++) {
        uint32_t given = bits_of(x[i]), bits = given + 0x7f + ((given >> 8) & 1);
        uint32_t is_nan = (given & ~(1u << 31)) > INFINITE;
        to[i] = (uint16_t)(is_nan ? QUIET_NAN : ((bits & ~0xffu) + 0x8000) >> 16);
        error[i] = (int8_t)(is_nan ? 0 : bits >> 8);
    }
}

static inline float with_error(uint16_t value, int8_t error) {
    return number_of(((uint32_t)value << 16) + ((uint32_t)(int32_t)error << 8));
}

void add_error(const void *value, const int8_t *error, float *y, int64_t size) {
    const uint16_t *from = value;
#pragma omp parallel for simd schedule(static) if (parallel : size > SMALL)
    for (int64_t i = 0; i < size; i++)
        y[i] = with_error(from[i], error[i]);
}

void add_stored(const void *value, const int8_t *error, float *y, int64_t size, float alpha) {
    const uint16_t *from = value;
#pragma omp parallel for simd schedule(static) if (parallel : size > SMALL)
    for (int64_t i = 0; i < size; i++)
        y[i] += alpha * with_error(from[i], error[i]);
}
