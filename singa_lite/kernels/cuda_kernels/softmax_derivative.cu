// dx = y * (dy - sum of dy * y) along lines, as in softmax.cu.
#include "lines.cuh"

extern "C" __global__ void softmax_derivative_short_rows(Walk<3> lines, int length, const T* dy, const T* y, T* dx) {
    each_line(lines, blockDim.y, threadIdx.y, [=](const int64(&at)[3], bool exists) {
        Row slopes{exists ? length : 0}, shares{exists ? length : 0};
        slopes.load(dy + at[1], C(0));
        shares.load(y + at[2], C(0));
        C sum = C(0);
        slopes.with(shares, [&](C slope, C share) { sum += slope * share; });
        sum = warp_sum(sum, blockDim.x);
        slopes.with(shares, [=](C& slope, C share) { slope = share * (slope - sum); });
        slopes.store(dx + at[0]);
    });
}

extern "C" __global__ void softmax_derivative_long_rows(Walk<3> lines, int length, const T* dy, const T* y, T* dx) {
    each_line(lines, 1, 0, [=](const int64(&at)[3], bool) {
        const T *slopes = dy + at[1], *shares = y + at[2];
        C sum = C(0);
        along_row(length, [&](C slope, C share) { sum += slope * share; }, in(slopes), in(shares));
        sum = block_sum(sum);
        along_row(
            length, [=](C& dx, C slope, C share) { dx = share * (slope - sum); }, out(dx + at[0]), in(slopes),
            in(shares));
    });
}

// The steps count elements of dx, dy and y.
extern "C" __global__ void softmax_derivative_columns(
    Walk<3> lines, int length, int64 dx_step, int64 dy_step, int64 y_step, const T* dy, const T* y, T* dx) {
    each_line(lines, blockDim.x, threadIdx.x, [=](const int64(&at)[3], bool exists) {
        const int end = exists ? length : 0;
        const T *slopes = dy + at[1], *shares = y + at[2];
        C sum = C(0);
        for (int i = threadIdx.y; i < end; i += blockDim.y) sum += C(slopes[i * dy_step]) * C(shares[i * y_step]);
        sum = column_reduce(sum, Sum<C>());
        for (int i = threadIdx.y; i < end; i += blockDim.y) {
            const C slope = C(slopes[i * dy_step]), share = C(shares[i * y_step]);
            dx[at[0] + i * dx_step] = T(share * (slope - sum));
        }
    });
}
