/* Random numbers by counter: Philox 4x64-10 (Salmon and others, SC 2011), to the bit what NumPy draws from a key. */
#ifndef PHILOX_H
#define PHILOX_H

#include "numbers.h"

/* Numbers of float32 that one count gives. */
#define DRAWN 8

/* The words of a count; key: seed, stream, counter. */
static inline void philox(const uint64_t *key, uint64_t count, uint64_t words[4]) {
    uint64_t first = key[0], second = key[1];
    uint64_t a = count, b = 0, c = 0, d = key[2];
    for (int round = 0; round < 10; round++) {
        __uint128_t low = (__uint128_t)a * 0xd2e7470ee14c6c93u, high = (__uint128_t)c * 0xca5a826395121157u;
        a = (uint64_t)(high >> 64) ^ b ^ first;
        c = (uint64_t)(low >> 64) ^ d ^ second;
        b = (uint64_t)high;
        d = (uint64_t)low;
        first += 0x9e3779b97f4a7c15u;
        second += 0xbb67ae8584caa73bu;
    }
    words[0] = a, words[1] = b, words[2] = c, words[3] = d;
}

/* Uniform numbers in [0, 1) of a key, those from `start` on. */
static inline void uniform_numbers(const uint64_t *key, int64_t start, int64_t count, float *numbers) {
    for (int64_t i = 0; i < count;) {
        int64_t skipped = (start + i) % DRAWN, end = least(DRAWN, skipped + count - i);
        uint32_t halves[DRAWN];
        uint64_t words[4];
        philox(key, (uint64_t)((start + i) / DRAWN) + 1, words); /* NumPy counts before it draws */
        for (int64_t each = 0; each < DRAWN; each++)
            halves[each] = (uint32_t)(words[each / 2] >> (32 * (each % 2)));
        for (int64_t each = skipped; each < end; each++)
            numbers[i++] = (float)(halves[each] >> 8) * (1.0f / 16777216.0f);
    }
}

#endif
