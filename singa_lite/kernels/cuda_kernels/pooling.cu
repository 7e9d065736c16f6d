// Pooling, a thread for each pack of y. I: the type of the winners' numbers.
#include "pooling.cuh"

template <int N, class Result> __device__ void pool(const Pooling& p, const T* x, T* y, I* index) {
    const bool whole = is_aligned(x) && is_aligned(y) && is_aligned(index);
    const unsigned step = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < p.positions.count; i += step) {
        const Position at = position_of(p.positions, i);
        const Clipped part = clipped(p, at.h, at.w);
        Result result;
        result.clear();
        gather<N>(p, at, part, x, whole, 0, 1, result);
        result.put(p, at, part, y, index, whole);
    }
}

extern "C" __global__ void max_pool2d(Pooling p, const T* x, T* y, I* index) {
    if (p.positions.pack == 1)
        pool<1, Maximum<1>>(p, x, y, index);
    else
        pool<VECTOR, Maximum<VECTOR>>(p, x, y, index);
}

extern "C" __global__ void avg_pool2d(Pooling p, const T* x, T* y) {
    if (p.positions.pack == 1)
        pool<1, Sum<1>>(p, x, y, nullptr);
    else
        pool<VECTOR, Sum<VECTOR>>(p, x, y, nullptr);
}
