// Pooling, a thread for each pack of y; of large windows, as of whole images, several threads, its lanes, which merge by a
// tree. I: the type of the winners' numbers.
#include "pooling.cuh"

// As in routine.py.
#define THREADS 256

template <template <int> class Result, int N>
__device__ void pool(Channels<N>, const Pooling& p, const T* x, T* y, I* index) {
    const bool whole = is_aligned(x) && is_aligned(y) && is_aligned(index);
    EACH(unsigned, i, p.positions.count) {
        const Position at = position_of(p.positions, i);
        const Clipped part = clipped(p, at.h, at.w);
        Result<N> result;
        result.clear();
        gather<N>(p, at, part, x, whole, 0, 1, result);
        result.put(p, at, part, y, index, whole);
    }
}

// lanes: a power of 2. Neighbouring threads take neighbouring channels where these lie in a row, else taps of one
// window.
template <template <int> class Result, int N>
__device__ void pool_by_lanes(Channels<N>, const Pooling& p, int lanes, const T* x, T* y, I* index) {
    __shared__ Result<N> results[THREADS];
    const bool whole = is_aligned(x) && is_aligned(y) && is_aligned(index);
    const unsigned windows = THREADS / lanes, t = threadIdx.x;
    const unsigned lane = p.positions.channels_inside ? t / windows : t % lanes;
    const unsigned own = p.positions.channels_inside ? t % windows : t / lanes;
    for (unsigned from = blockIdx.x * windows; from < p.positions.count; from += gridDim.x * windows) {
        const bool active = from + own < p.positions.count;
        const Position at = position_of(p.positions, active ? from + own : 0);
        const Clipped part = clipped(p, at.h, at.w);
        Result<N> result;
        result.clear();
        if (active) gather<N>(p, at, part, x, whole, lane, lanes, result);
        for (unsigned half = lanes / 2; half > 0; half /= 2) {
            if (lane >= half && lane < 2 * half) results[own * lanes + lane] = result;
            __syncthreads();
            if (lane < half) result.merge(results[own * lanes + lane + half]);
        }
        if (active && lane == 0) result.put(p, at, part, y, index, whole);
        __syncthreads();
    }
}

extern "C" __global__ void max_pool2d(Pooling p, const T* x, T* y, I* index) {
    by_channels(p.positions.pack, [&](auto n) { pool<Maximum>(n, p, x, y, index); });
}

extern "C" __global__ void max_pool2d_lanes(Pooling p, int lanes, const T* x, T* y, I* index) {
    by_channels(p.positions.pack, [&](auto n) { pool_by_lanes<Maximum>(n, p, lanes, x, y, index); });
}

extern "C" __global__ void avg_pool2d(Pooling p, const T* x, T* y) {
    by_channels(p.positions.pack, [&](auto n) { pool<Sum>(n, p, x, y, nullptr); });
}

extern "C" __global__ void avg_pool2d_lanes(Pooling p, int lanes, const T* x, T* y) {
    by_channels(p.positions.pack, [&](auto n) { pool_by_lanes<Sum>(n, p, lanes, x, y, nullptr); });
}
