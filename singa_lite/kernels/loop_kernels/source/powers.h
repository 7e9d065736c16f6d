/* Powers of e of a row less its largest element, so that none overflows. */
#ifndef POWERS_H
#define POWERS_H

#include <float.h>

#include "functions.h"
#include "sums.h"

/* e^x for x up to 0, 0 from -87.3 down: fewer steps than `exponential`, which most of the time here goes into. */
static inline float power(float x) {
    Parts parts = parts_by_log2(x);
    float found = (1.0f + near_0(parts.rest)) * whole_power_of_2(parts.times);
    return x < -87.3f ? 0 : found;
}

/* The largest of numbers and of `top`, which NaN leaves as it is. */
static inline float largest(const float *x, int64_t count, float top) {
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < count; i++)
        top = x[i] > top ? x[i] : top;
    return top;
}

/* The largest element of a row, at least the least number, so that minus infinity less it is no NaN. */
static inline float largest_of_row(Rows x, int64_t row, int64_t columns) {
    float buffer[CHUNK], top = -FLT_MAX;
    for (int64_t column = 0; column < columns; column += CHUNK) {
        int64_t count = least(CHUNK, columns - column);
        top = largest(read_chunk(x, row, column, count, buffer), count, top);
    }
    return top;
}

/* The sum of e^(x - top) of at most CHUNK numbers. y: where they are put; NULL: nowhere. */
static inline float sum_powers(const float *x, int64_t count, float top, float *y) {
    float sum = 0;
    if (!y) {
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < count; i++)
            sum += power(x[i] - top);
        return sum;
    }
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) {
        float found = power(x[i] - top);
        y[i] = found;
        sum += found;
    }
    return sum;
}

/* y = softmax of a row of x, which may lie in the same place. Gives the sum of e^(x - top), top the row's largest. */
static inline double softmax_row(Rows x, Rows y, int64_t row, int64_t columns, float top) {
    float buffer[CHUNK], powers[CHUNK];
    double sum = 0;
    for (int64_t column = 0; column < columns; column += CHUNK) {
        int64_t count = least(CHUNK, columns - column);
        const float *from = read_chunk(x, row, column, count, buffer);
        sum += sum_powers(from, count, top, y.is_narrow ? NULL : target_chunk(y, row, column, NULL));
    }
    float scale = (float)(1 / sum);
    for (int64_t column = 0; column < columns; column += CHUNK) {
        int64_t count = least(CHUNK, columns - column);
        float *to = target_chunk(y, row, column, powers);
        if (y.is_narrow) /* powers are taken again, as they would be rounded twice */
            sum_powers(read_chunk(x, row, column, count, buffer), count, top, powers);
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            to[i] *= scale;
        write_chunk(y, row, column, count, powers);
    }
    return sum;
}

/* Rows of at most FEW columns are done BLOCK at a time, side by side. */
#define BLOCK 64
#define FEW 32

/* `softmax_row` of rows from `start` on: one column of all of them after the other. */
static inline void softmax_block(Rows x, Rows y, int64_t start, int64_t columns, float *top, float *sum) {
    float powers[FEW][BLOCK], scale[BLOCK];
    for (int64_t row = 0; row < BLOCK; row++) {
        top[row] = -FLT_MAX;
        sum[row] = 0;
    }
    for (int64_t column = 0; column < columns; column++)
#pragma omp simd
        for (int64_t row = 0; row < BLOCK; row++) {
            float score = number_at(x, start + row, column);
            powers[column][row] = score;
            top[row] = score > top[row] ? score : top[row];
        }
    for (int64_t column = 0; column < columns; column++)
#pragma omp simd
        for (int64_t row = 0; row < BLOCK; row++) {
            float found = power(powers[column][row] - top[row]);
            powers[column][row] = found;
            sum[row] += found;
        }
    for (int64_t row = 0; row < BLOCK; row++)
        scale[row] = 1 / sum[row];
    for (int64_t row = 0; row < BLOCK; row++)
        for (int64_t column = 0; column < columns; column++)
            set_number(y, start + row, column, powers[column][row] * scale[row]);
}

#endif
