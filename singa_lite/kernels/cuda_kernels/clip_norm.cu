// y *= threshold / norm where the norm exceeds the threshold. Squares are added in double precision: in float32 they
// would overflow at elements of 1e19 and lose small ones.
#include "map.cuh"
#include "reduce.cuh"

// sums[block] = sum of the squares of the elements that the block's threads take.
extern "C" __global__ void sums_of_squares(Walk<1> walk, const T* y, double* sums) {
    double sum = 0;
    map(walk, [&](C y) { sum += double(y) * double(y); }, in(y));
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// Every block adds the sums up for itself, all in the same order.
extern "C" __global__ void clip_by_norm(Walk<1> walk, T* y, const double* sums, int count, double threshold) {
    double sum = 0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) sum += sums[i];
    const double norm = sqrt(block_sum(sum));
    if (!(norm > threshold)) return;
    const C factor = C(threshold / norm);
    map(walk, [=](C& y) { y *= factor; }, both(y));
}

// total += the sums, added up by one block.
extern "C" __global__ void add_sums(const double* sums, int count, double* total) {
    double sum = 0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) sum += sums[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *total += sum;
}

// NaN stays NaN.
extern "C" __global__ void clip_factor(const double* total, double* norm, double* factor, double limit) {
    *norm = sqrt(*total);
    const double wanted = limit / (*norm + 1e-6);
    *factor = wanted > 1.0 ? 1.0 : wanted;
}

extern "C" __global__ void scale_by(Walk<1> walk, const double* by, T* y) {
    if (*by == 1.0) return;
    const C factor = C(*by);
    map(walk, [=](C& y) { y *= factor; }, both(y));
}
