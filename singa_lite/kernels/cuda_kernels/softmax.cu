// Softmax along lines: short rows, one read and one write by a team of lanes; long rows, a block for each; columns.
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
