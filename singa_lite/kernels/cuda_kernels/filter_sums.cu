// The second stage of gradients by filters.
#include "images.cuh"

// dweight = the sum of partials (splits, k, kh, kw, c / groups) over the splits, in their order.
extern "C" __global__ void filter_sums(Images weight, Positions positions, int splits, const C* partials, T* dweight) {
    EACH(unsigned, i, positions.count) {
        C sum = C(0);
#pragma unroll 8
        for (int split = 0; split < splits; ++split) sum += partials[(int64)split * positions.count + i];
        dweight[offset(weight, position_of(positions, i))] = T(sum);
    }
}
