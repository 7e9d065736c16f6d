// Softmax along lines, and its derivative dx = y * (dy - sum of dy * y): short rows, one read and one write by a team of
// lanes; long rows, a block for each; columns.
#include "lines.cuh"

extern "C" __global__ void softmax_short_rows(Walk<2> lines, int length, const T* x, T* y) {
    each_line(lines, blockDim.y, threadIdx.y, [=](const int64(&at)[2], bool exists) {
        Row row{exists ? length : 0};
        row.load(x + at[1], -infinity());
        C top = -infinity(), sum = C(0);
        row.each([&](C v, int) { top = Largest<C>()(top, v); });
        top = warp_max(top, blockDim.x);
        row.each([&](C& v, int) { sum += v = exp(v - top); });
        const C factor = C(1) / warp_sum(sum, blockDim.x);
        row.each([=](C& v, int) { v *= factor; });
        row.store(y + at[0]);
    });
}

extern "C" __global__ void softmax_long_rows(Walk<2> lines, int length, const T* x, T* y) {
    each_line(lines, 1, 0, [=](const int64(&at)[2], bool) {
        const T* row = x + at[1];
        C top = -infinity(), sum = C(0);
        along_row(length, [&](C v) { top = Largest<C>()(top, v); }, in(row));
        top = block_max(top);
        along_row(length, [&](C v) { sum += exp(v - top); }, in(row));
        const C factor = C(1) / block_sum(sum);
        along_row(length, [=](C& y, C v) { y = exp(v - top) * factor; }, out(y + at[0]), in(row));
    });
}

// The steps count elements of y and x.
extern "C" __global__ void softmax_columns(Walk<2> lines, int length, int64 y_step, int64 x_step, const T* x, T* y) {
    each_line(lines, blockDim.x, threadIdx.x, [=](const int64(&at)[2], bool exists) {
        const int end = exists ? length : 0;
        const T* column = x + at[1];
        C top = -infinity(), sum = C(0);
        for (int i = threadIdx.y; i < end; i += blockDim.y) top = Largest<C>()(top, C(column[i * x_step]));
        top = column_reduce(top, Largest<C>());
        for (int i = threadIdx.y; i < end; i += blockDim.y) sum += exp(C(column[i * x_step]) - top);
        const C factor = C(1) / column_reduce(sum, Sum<C>());
        for (int i = threadIdx.y; i < end; i += blockDim.y)
            y[at[0] + i * y_step] = T(exp(C(column[i * x_step]) - top) * factor);
    });
}

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
