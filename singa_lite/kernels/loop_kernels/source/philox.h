/* Random numbers by counter: Philox 4x64-10 (Salmon and others, SC 2011), to the bit what NumPy draws from a key. */
#ifndef PHILOX_H
#define PHILOX_H

#include "numbers.h"

/* Numbers of float32 that one count of the generator gives. */
#define DRAWN 8

/* Numbers DRAWN * count to DRAWN * count + 7: words of 32 bits. key: seed, stream, counter. */
static inline void draw(const uint64_t *key, uint64_t count, uint32_t words[DRAWN]) {
    uint64_t state[4] = {count + 1, count == UINT64_MAX, 0, key[2]}, first = key[0], second = key[1];
    for (int round = 0; round < 10; round++) {
        unsigned __int128 a = (unsigned __int128)state[0] * 0xD2E7470EE14C6C93u;
        unsigned __int128 b = (unsigned __int128)state[2] * 0xCA5A826395121157u;
        uint64_t next[4] = {(uint64_t)(b >> 64) ^ state[1] ^ first, (uint64_t)b,
                            (uint64_t)(a >> 64) ^ state[3] ^ second, (uint64_t)a};
        memcpy(state, next, sizeof state);
        first += 0x9E3779B97F4A7C15u;
        second += 0xBB67AE8584CAA73Bu;
    }
    memcpy(words, state, sizeof state);
}

/* A number from 0 to 1, without 1, of 24 bits. */
static inline float uniform_of(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }

/* Uniform numbers in [0, 1) of a key, those from `start` on. */
static inline void uniform_numbers(const uint64_t *key, int64_t start, int64_t count, float *numbers) {
    for (int64_t i = 0; i < count;) {
        int64_t skipped = (start + i) % DRAWN, end = least(DRAWN, skipped + count - i);
        uint32_t words[DRAWN];
        draw(key, (uint64_t)((start + i) / DRAWN), words);
        for (int64_t each = skipped; each < end; each++)
            numbers[i++] = uniform_of(words[each]);
    }
}

#endif
