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

/* The uniform numbers of a count, in [0, 1): 24 bits of each half of a word, the lower half first. */
static inline void draw(const uint64_t *key, int64_t count, float numbers[DRAWN]) {
    uint64_t words[4];
    philox(key, (uint64_t)count + 1, words); /* NumPy counts before it draws */
    for (int each = 0; each < 4; each++) {
        numbers[2 * each] = (float)(int32_t)((uint32_t)words[each] >> 8) * (1.0f / 16777216.0f);
        numbers[2 * each + 1] = (float)(int32_t)(words[each] >> 40) * (1.0f / 16777216.0f);
    }
}

/* Uniform numbers of a key, those from `start` on. */
static inline void uniform_numbers(const uint64_t *key, int64_t start, int64_t count, float *numbers) {
    float few[DRAWN];
    int64_t skipped = start % DRAWN, i = 0;
    if (skipped) {
        draw(key, start / DRAWN, few);
        for (; i < count && skipped + i < DRAWN; i++)
            numbers[i] = few[skipped + i];
    }
    for (; i + DRAWN <= count; i += DRAWN)
        draw(key, (start + i) / DRAWN, numbers + i);
    if (i < count) {
        draw(key, (start + i) / DRAWN, few);
        memcpy(numbers + i, few, (count - i) * sizeof(float));
    }
}

#endif
