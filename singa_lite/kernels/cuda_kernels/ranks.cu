// What a process does to its numbers before and behind sums over all processes. T: their type; they lie without gaps.
#include "numbers.cuh"

__device__ inline int64 first() { return blockIdx.x * int64(blockDim.x) + threadIdx.x; }
__device__ inline int64 step() { return int64(blockDim.x) * gridDim.x; }

union Bits {
    float number;
    unsigned int word;
};

// Zeros, where this process's share of the samples is 0; whatever its kernels have made of none.
extern "C" __global__ void clear_idle(T* values, int64 count, const double* share) {
    if (*share != 0) return;
    for (int64 i = first(); i < count; i += step()) values[i] = T(0);
}

// values + rest, rounded to bfloat16, ties to even, are the new values; what rounding took away is the new rest. Where
// this process's share of the samples is 0, the rest is all that there is.
extern "C" __global__ void narrow(float* values, float* rest, int64 count, const double* share) {
    const bool is_idle = *share == 0;
    for (int64 i = first(); i < count; i += step()) {
        Bits whole, sent;
        whole.number = is_idle ? rest[i] : values[i] + rest[i];
        const unsigned int rounded = (whole.word + 0x7FFF + ((whole.word >> 16) & 1)) >> 16;
        sent.word = (is_nan(whole.number) ? 0x7FC0 : rounded) << 16;
        const float left = whole.number - sent.number;
        values[i] = sent.number;
        rest[i] = left - left == 0 ? left : 0.0f;
    }
}

// The upper halves of numbers that bfloat16 holds.
extern "C" __global__ void pack(const float* values, unsigned short* halves, int64 count) {
    for (int64 i = first(); i < count; i += step()) {
        Bits whole;
        whole.number = values[i];
        halves[i] = (unsigned short)(whole.word >> 16);
    }
}

extern "C" __global__ void widen(const unsigned short* halves, float* values, int64 count) {
    for (int64 i = first(); i < count; i += step()) {
        Bits whole;
        whole.word = (unsigned int)halves[i] << 16;
        values[i] = whole.number;
    }
}

// As `draw_key` of random.cu; by: between the counters of the first process and of this one.
extern "C" __global__ void draw_key_of(uint64* state, int64 state_step, uint64* key, int64 key_step, uint64 by) {
    for (int word = 0; word < 3; ++word) key[word * key_step] = state[word * state_step];
    key[2 * key_step] += by;
    ++state[2 * state_step];
}
