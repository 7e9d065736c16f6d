// What a process does to its numbers before and behind sums over all processes. T: their type; they lie without gaps.
#include "numbers.cuh"

// Zeros, where this process's share of the samples is 0; whatever its kernels have made of none.
extern "C" __global__ void clear_idle(T* values, int64 count, const double* share) {
    if (*share != 0) return;
    EACH(int64, i, count) values[i] = T(0);
}

// As `draw_key` of random.cu; by: between the counters of the first process and of this one.
extern "C" __global__ void draw_key_of(uint64* state, int64 state_step, uint64* key, int64 key_step, uint64 by) {
    for (int word = 0; word < 3; ++word) key[word * key_step] = state[word * state_step];
    key[2 * key_step] += by;
    ++state[2 * state_step];
}
