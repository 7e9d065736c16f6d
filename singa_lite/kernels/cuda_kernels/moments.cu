// The first stage of mean and variance: sums and squared deviations of each slab, and
// what they are relative to.
#include "moments.cuh"

template <class L>
__device__ __forceinline__ void moments_of_slab(const Plane<1>& plane, const T* x, C* sums, C* squares, C* origin,
                                                    C* memory) {
    const int V = L::COUNT, AT_ONCE = Taken<V>::COUNT;
    const Part part = part_of(plane);
    const int64 height = plane.height, step = inner(plane.kept, 0);
    Moments<V> own;
    clear(own);
    if (part.held) {
        int64 base[1];
        C from[V];
        offsets(plane.kept, (unsigned)part.kept, base);
        origins<L>(plane.summed, base, x, step, from);
        if (part.slab == 0 && part.down == 0) {
#pragma unroll
            for (int j = 0; j < V; ++j) origin[part.kept + j] = from[j];
        }
        for (int64 row = part.first; row < part.end; row += AT_ONCE * height) {
            Loaded<L, T> values[AT_ONCE];
            int count = 0;
#pragma unroll
            for (int k = 0; k < AT_ONCE; ++k) {
                const int64 index = row + k * height;
                int64 at[1];
                locate<L>(plane.summed, min(index, part.end - 1), base, at);
                values[k].load(x + at[0], step);
                count += index < part.end;
            }
            if (count == AT_ONCE)
                take(own, values, AT_ONCE, from);
            else
                take(own, values, count, from);
        }
    }
    merge_down(plane, part, own, memory);
    keep_partial(plane, part, own.sum, sums);
    keep_partial(plane, part, own.squares, squares);
}

extern "C" __global__ void slab_moments(Plane<1> plane, const T* x, C* sums, C* squares, C* origin) {
    __shared__ C memory[(2 * VECTOR + 1) * THREADS];
    by_lanes(plane, are_aligned(in(x)), [&](auto lanes) {
        moments_of_slab<decltype(lanes)>(plane, x, sums, squares, origin, memory);
    });
}
