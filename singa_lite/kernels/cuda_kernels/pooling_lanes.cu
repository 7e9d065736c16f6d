// Pooling of large windows, as of whole images: several threads, its lanes, share a window and merge by a tree.
#include "pooling.cuh"

// As in routine.py.
#define THREADS 256

// lanes: a power of 2. Neighbouring threads take neighbouring channels where these lie in a row, else taps of one
// window.
template <int N, class Result> __device__ void pool(const Pooling& p, int lanes, const T* x, T* y, I* index) {
    __shared__ Result results[THREADS];
    const bool whole = is_aligned(x) && is_aligned(y) && is_aligned(index);
    const unsigned windows = THREADS / lanes, t = threadIdx.x;
    const unsigned lane = p.positions.channels_inside ? t / windows : t % lanes;
    const unsigned own = p.positions.channels_inside ? t % windows : t / lanes;
    for (unsigned from = blockIdx.x * windows; from < p.positions.count; from += gridDim.x * windows) {
        const bool active = from + own < p.positions.count;
        const Position at = position_of(p.positions, active ? from + own : 0);
        const Clipped part = clipped(p, at.h, at.w);
        Result result;
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

extern "C" __global__ void max_pool2d_lanes(Pooling p, int lanes, const T* x, T* y, I* index) {
    if (p.positions.pack == 1)
        pool<1, Maximum<1>>(p, lanes, x, y, index);
    else
        pool<VECTOR, Maximum<VECTOR>>(p, lanes, x, y, index);
}

extern "C" __global__ void avg_pool2d_lanes(Pooling p, int lanes, const T* x, T* y) {
    if (p.positions.pack == 1)
        pool<1, Sum<1>>(p, lanes, x, y, nullptr);
    else
        pool<VECTOR, Sum<VECTOR>>(p, lanes, x, y, nullptr);
}
