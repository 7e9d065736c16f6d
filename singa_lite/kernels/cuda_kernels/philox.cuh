// Philox 4x64-10 (Salmon et al., SC 2011), the uniform numbers that NumPy makes of it, normal ones that it does not,
// and who takes which.
#pragma once
#include "map.cuh"

// A block of four words, of which NumPy makes eight float32 or four float64 numbers.
struct Words {
    uint64 v[4];
};

struct Key {
    uint64 seed, stream, counter;
};

// step: how far apart the words of a key lie.
__device__ inline Key key_at(const uint64* key, int64 step) { return {key[0], key[step], key[2 * step]}; }

// Block number `block` of the stream that a key stands for. NumPy counts up before each block.
__device__ inline Words philox(const Key& key, uint64 block) {
    uint64 k0 = key.seed, k1 = key.stream;
    Words c = {{block + 1, 0, 0, key.counter}};
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const uint64 m0 = 0xD2E7470EE14C6C93ull, m1 = 0xCA5A826395121157ull;
        const uint64 high0 = __umul64hi(m0, c.v[0]), high1 = __umul64hi(m1, c.v[2]);
        c = {{high1 ^ c.v[1] ^ k0, m1 * c.v[2], high0 ^ c.v[3] ^ k1, m0 * c.v[0]}};
        k0 += 0x9E3779B97F4A7C15ull;
        k1 += 0xBB67AE8584CAA73Bull;
    }
    return c;
}

// Half i of a block's words, the low one of each first.
__device__ inline unsigned half_of(const Words& words, int i) { return (unsigned)(words.v[i / 2] >> (i % 2 * 32)); }

// Number i of a block in [0, 1).
__device__ inline void number_of(const Words& words, int i, float& number) {
    number = (half_of(words, i) >> 8) * (1.0f / 16777216.0f);
}
__device__ inline void number_of(const Words& words, int i, double& number) {
    number = (words.v[i] >> 11) * (1.0 / 9007199254740992.0);
}

// Normal numbers of float or double, two of each two uniform ones (Box and Muller, 1958), of halves of words or words.
template <typename V> struct Normal {
    V value;
};
__device__ inline void number_of(const Words& words, int i, Normal<float>& number) {
    const float u = (float(half_of(words, i & ~1)) + 1.0f) * (1.0f / 4294967296.0f); // in (0, 1]
    const float turn = float(half_of(words, i | 1)) * (1.0f / 2147483648.0f);
    number.value = sqrt(-2.0f * log(u)) * (i % 2 ? sinpi(turn) : cospi(turn));
}
__device__ inline void number_of(const Words& words, int i, Normal<double>& number) {
    const double u = (double(words.v[i & ~1] >> 11) + 1.0) * (1.0 / 9007199254740992.0); // in (0, 1]
    const double turn = double(words.v[i | 1] >> 11) * (1.0 / 4503599627370496.0);
    number.value = sqrt(-2.0 * log(u)) * (i % 2 ? sinpi(turn) : cospi(turn));
}

// f(number, operands...) for each element; a thread takes those of a whole block. Number: float, double, or Normal of
// one of them. The walk's first operand is never touched: it lies in C order, and says which number an element takes.
template <typename Number, class F, class... Ops>
__device__ void draw(const Walk<(int)sizeof...(Ops) + 1>& walk, const Key& key, F f, Ops... ops) {
    const int N = sizeof...(Ops), NUMBERS = sizeof(Words) / sizeof(Number);
    const int64 step = (int64)gridDim.x * blockDim.x;
    bool broadcast[N];
#pragma unroll
    for (int n = 0; n < N; ++n) broadcast[n] = walk.strides[n + 1][walk.axes - 1] == 0;
    const bool packs = walk.mode == FLAT && are_aligned(ops...);
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i * NUMBERS < walk.count; i += step) {
        const Words words = philox(key, (uint64)i);
        int64 at[N];
        if (packs && (i + 1) * NUMBERS <= walk.count) {
#pragma unroll
            for (int k = 0; k < NUMBERS; k += VECTOR) {
#pragma unroll
                for (int n = 0; n < N; ++n) at[n] = broadcast[n] ? 0 : i * NUMBERS + k;
                int next = k;
                auto numbered = [&](typename Held<typename Ops::type>::type&... held) {
                    Number number;
                    number_of(words, next++, number);
                    f(number, held...);
                };
                at_pack(at, broadcast, numbered, ops...);
            }
            continue;
        }
#pragma unroll
        for (int k = 0; k < NUMBERS; ++k) {
            if (i * NUMBERS + k >= walk.count) break;
            int64 all[N + 1];
            far_offsets(walk, i * NUMBERS + k, all);
#pragma unroll
            for (int n = 0; n < N; ++n) at[n] = all[n + 1];
            auto numbered = [&](typename Held<typename Ops::type>::type&... held) {
                Number number;
                number_of(words, k, number);
                f(number, held...);
            };
            at_one(at, numbered, ops...);
        }
    }
}
