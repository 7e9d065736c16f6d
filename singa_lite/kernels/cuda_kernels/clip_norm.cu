// y *= threshold / norm where the norm exceeds the threshold. Squares are added in double precision: in float32 they
// would overflow at elements of 1e19 and lose small ones.
#include "map.cuh"
#include "reduce.cuh"

// sums[block] = sum of the squares of the elements that the block's threads take.
extern "C" __global__ void sums_of_squares(const __grid_constant__ Walk<1> walk, const T* y, double* sums) {
    double sum = 0;
    map(walk, [&](C y) { sum += double(y) * double(y); }, in(y));
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// Every block adds the sums up for itself, all in the same order.
extern "C" __global__ void clip_by_norm(
    const __grid_constant__ Walk<1> walk, T* y, const double* sums, int count, double threshold) {
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

extern "C" __global__ void scale_by(const __grid_constant__ Walk<1> walk, const double* by, T* y) {
    if (*by == 1.0) return;
    const C factor = C(*by);
    map(walk, [=](C& y) { y *= factor; }, both(y));
}

// Gradients were made of the loss times the scale. Where their squares are no finite number: applied is NaN, by which
// updates do nothing.
extern "C" __global__ void unscale_factor(
    const double* total, const double* rate, const double* scale, double* norm, double* factor, double* applied,
    double limit) {
    *norm = sqrt(*total) / *scale;
    const bool finite = *total - *total == 0.0;
    const double wanted = limit / (*norm + 1e-6);
    *applied = finite ? *rate : *total - *total;
    *factor = !finite ? 1.0 : (wanted > 1.0 ? 1.0 : wanted) / *scale;
}

// Halved behind a step that was skipped, doubled behind so many in a row that were not.
extern "C" __global__ void next_loss_scale(
    const double* applied, double* scale, int64* good, int64* skipped, int64 interval, double least) {
    const bool is_skipped = *applied != *applied;
    *skipped += is_skipped;
    *good = is_skipped ? 0 : *good + 1;
    if (interval == 0) return;
    if (is_skipped) {
        const double half = *scale / 2.0;
        *scale = half < least ? least : half;
    } else if (*good >= interval) {
        const double twice = *scale * 2.0;
        *scale = twice > 1.0 / least ? 1.0 / least : twice;
        *good = 0;
    }
}

extern "C" __global__ void take_back(Walk<2> walk, const double* applied, const T* before, T* y) {
    if (*applied == *applied) return;
    map(walk, [=](C& y, C before) { y = before; }, both(y), in(before));
}
