// Layer normalization of rows that keep several blocks busy. S: the type of gamma and all vectors like it.
#include "moments.cuh"

// rows: x, mean, inv_std.
extern "C" __global__ void row_statistics(Walk<3> rows, const C* sums, const C* squares, const C* origin,
                                          unsigned slabs, int64 slab, int64 count, double epsilon, S* mean, S* inv_std) {
    const int64 row = warp_index();
    if (row >= rows.count) return;
    const int64 first = row * slabs;
    const Statistics own = statistics_of_slabs(sums + first, squares + first, slabs, slab, count, origin[row]);
    if (threadIdx.x % 32) return;
    int64 at[3];
    offsets(rows, (unsigned)row, at);
    mean[at[1]] = S(own.mean);
    inv_std[at[2]] = S(C(1) / sqrt(own.variance + C(epsilon)));
}

extern "C" __global__ void row_normalize(Walk<6> walk, const T* x, const S* gamma, const S* beta, const S* mean,
                                         const S* inv_std, T* y) {
    map(
        walk,
        [](C& y, C x, C gamma, C beta, C mean, C inv_std) { y = fma((x - mean) * inv_std, gamma, beta); },
        out(y), in(x), in(gamma), in(beta), in(mean), in(inv_std));
}

// Partial sums of g = dy * gamma and of g * (x - mean). plane: dy, x, gamma. rows: dy, mean.
template <class L>
__device__ __forceinline__ void projections_of_slab(const Plane<3>& plane, const Walk<2>& rows, const T* dy, const T* x,
                                                    const S* gamma, const S* mean, C* sums, C* products, C* memory) {
    const int64 step = inner(plane.kept, 2);
    C average[L::COUNT];
    two_sums_of_slab<L>(plane, dy, x, sums, products, memory, [&](int64 first) {
#pragma unroll
        for (int j = 0; j < L::COUNT; ++j) {
            int64 at[2];
            offsets(rows, (unsigned)first + j, at);
            average[j] = C(mean[at[1]]);
        }
        return [=, &average](const int64(&at)[3], C dy, C x, int j, C& sum, C& product) {
            const C slope = C(gamma[at[2] + j * step]); // one for all rows, or of groups of channels
            sum = fma(dy, slope, sum);
            product = fma(dy * slope, x - average[j], product);
        };
    });
}

extern "C" __global__ void row_slab_projections(Plane<3> plane, Walk<2> rows, const T* dy, const T* x, const S* gamma,
                                                const S* mean, C* sums, C* products) {
    __shared__ C memory[VECTOR * THREADS];
    by_lanes(plane, are_aligned(in(dy), in(x)), [&](auto lanes) {
        projections_of_slab<decltype(lanes)>(plane, rows, dy, x, gamma, mean, sums, products, memory);
    });
}

// offset = mean of g, slope = inv_std**2 * mean of g * (x - mean). rows: dy, inv_std, offset, slope.
extern "C" __global__ void row_projections(Walk<4> rows, const C* sums, const C* products, unsigned slabs, int64 count,
                                           const S* inv_std, C* offset, C* slope) {
    const int64 row = warp_index();
    if (row >= rows.count) return;
    const C share = C(1) / C(count);
    const C sum = sum_of_slabs(sums + row * slabs, slabs);
    const C product = sum_of_slabs(products + row * slabs, slabs);
    if (threadIdx.x % 32) return;
    int64 at[4];
    offsets(rows, (unsigned)row, at);
    const C inverse = C(inv_std[at[1]]);
    offset[at[2]] = sum * share;
    slope[at[3]] = product * share * inverse * inverse;
}

extern "C" __global__ void row_derivative(Walk<8> walk, const T* dy, const T* x, const S* gamma, const S* mean,
                                          const S* inv_std, const C* offset, const C* slope, T* dx) {
    map(
        walk,
        [](C& dx, C dy, C x, C gamma, C mean, C inv_std, C offset, C slope) {
            dx = inv_std * fma(mean - x, slope, rounded_product(dy, gamma) - offset); // a row of one gives 0
        },
        out(dx), in(dy), in(x), in(gamma), in(mean), in(inv_std), in(offset), in(slope));
}
