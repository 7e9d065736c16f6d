// Sums, largest and smallest values over the threads of a warp, a part of one, or a block; each gets the result.
// Always in the same order, so that equal operands give equal bits. All threads of the warp or block must take part.
#pragma once
#include "numbers.cuh"

template <typename V> struct Sum {
    __device__ inline V operator()(V a, V b) const { return a + b; }
};
// NaN wins.
template <typename V> struct Largest {
    __device__ inline V operator()(V a, V b) const { return a > b || a != a ? a : b; }
};
template <typename V> struct Smallest {
    __device__ inline V operator()(V a, V b) const { return a < b || a != a ? a : b; }
};

// Over groups of `width` neighbouring lanes, a power of two.
template <typename V, class F> __device__ inline V warp_reduce(V value, F f, int width = 32) {
    for (int by = width / 2; by > 0; by /= 2) value = f(value, __shfl_xor_sync(0xffffffffu, value, by));
    return value;
}

// Blocks of whole warps, of any shape. May be called again and again.
template <typename V, class F> __device__ inline V block_reduce(V value, F f) {
    __shared__ V of_warps[32];
    const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const int warps = blockDim.x * blockDim.y * blockDim.z / 32;
    value = warp_reduce(value, f);
    __syncthreads(); // all have read the result of the call before
    if (thread % 32 == 0) of_warps[thread / 32] = value;
    __syncthreads();
    value = of_warps[0];
    for (int warp = 1; warp < warps; ++warp) value = f(value, of_warps[warp]);
    return value;
}

template <typename V> __device__ inline V warp_sum(V value, int width = 32) {
    return warp_reduce(value, Sum<V>(), width);
}
template <typename V> __device__ inline V warp_max(V value, int width = 32) {
    return warp_reduce(value, Largest<V>(), width);
}
template <typename V> __device__ inline V block_sum(V value) { return block_reduce(value, Sum<V>()); }
template <typename V> __device__ inline V block_max(V value) { return block_reduce(value, Largest<V>()); }

// Over a team: `blockDim.x` neighbouring threads, a power of two up to 32, or else the whole block (blockDim.y is 1).
template <typename V, class F> __device__ inline V team_reduce(V value, F f) {
    return blockDim.x <= 32 ? warp_reduce(value, f, blockDim.x) : block_reduce(value, f);
}
template <typename V> __device__ inline V team_sum(V value) { return team_reduce(value, Sum<V>()); }
template <typename V> __device__ inline V team_max(V value) { return team_reduce(value, Largest<V>()); }
