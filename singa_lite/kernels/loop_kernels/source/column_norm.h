/* Passes over rows whose columns are normalized each by its own numbers: sums, results, derivatives.
 *
 *     y  = (x - mean) * scale + beta
 *     dx = (x - mean) * slope + (dy * scale + offset)
 *
 * Sums are in float32 over FLOAT_ROWS rows and in float64 over these; those of x are of its distance from the mean so
 * far, which is close enough to lose nothing. */
#ifndef COLUMN_NORM_H
#define COLUMN_NORM_H

#include "sums.h"
#include "wide_rows.h"

/* Rows whose mean is the first centre. */
#define FIRST 16

/* Vectors of columns. beta: of derivatives NULL where no activation follows the normalization. */
typedef struct {
    const float *mean, *scale, *beta;
    float low, high;
} Normal;

/* Sums of the distances from the centre, and of their squares. */
static inline void sum_block(Wide x, int64_t start, int64_t end, int64_t column, int64_t count,
                             const float *restrict centre, float *restrict sum, float *restrict square) {
    float buffer[SPAN];
    memset(sum, 0, count * sizeof(float));
    memset(square, 0, count * sizeof(float));
    for (int64_t row = start; row < end; row++) {
        const float *a = read_wide(x, row, column, count, buffer);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            float distance = a[i] - centre[i];
            sum[i] += distance;
            square[i] += distance * distance;
        }
    }
}

/* Sums of the distances from the shift, and of their squares, over a few columns of a piece. */
static inline void sum_piece(Wide x, int64_t start, int64_t end, int64_t column, int64_t count,
                             const float *restrict shift, double *restrict total, double *restrict squares) {
    float centre[SPAN], sum[SPAN], square[SPAN];
    int64_t first = least(start + FIRST, end);
    memmove(centre, read_wide(x, start, column, count, centre), count * sizeof(float));
    sum_block(x, start, first, column, count, centre, sum, square);
    for (int64_t i = 0; i < count; i++)
        centre[i] += sum[i] / (first - start);
    for (int64_t row = start; row < end; row += FLOAT_ROWS) {
        int64_t stop = least(row + FLOAT_ROWS, end);
        sum_block(x, row, stop, column, count, centre, sum, square);
        double rows = (double)(stop - row), share = 1 / (double)(stop - start);
        for (int64_t i = 0; i < count; i++) {
            double offset = (double)centre[i] - shift[i];
            total[i] += sum[i] + rows * offset;
            squares[i] += square[i] + offset * (2 * (double)sum[i] + rows * offset);
            centre[i] = (float)(shift[i] + total[i] * share);
        }
    }
}

static inline void normalize_rows(Wide x, Wide other, Wide y, Normal by, int64_t start, int64_t end, int64_t columns) {
    float from[SPAN], more[SPAN], to[SPAN], low = by.low, high = by.high;
    for (int64_t row = start; row < end; row++)
        for (int64_t column = 0; column < columns; column += SPAN) {
            int64_t count = least(SPAN, columns - column);
            const float *a = read_wide(x, row, column, count, from), *mean = by.mean + column;
            const float *scale = by.scale + column, *beta = by.beta + column, *b = NULL;
            float *result = target_wide(y, row, column, to);
            if (other.rows.at)
                b = read_wide(other, row, column, count, more);
#pragma omp simd
            for (int64_t i = 0; i < count; i++) {
                float value = (a[i] - mean[i]) * scale[i] + beta[i];
                value = b ? value + b[i] : value;
                value = value <= low ? low : value;
                result[i] = value >= high ? high : value;
            }
            write_wide(y, row, column, count, to);
        }
}

/* Whether an activation after the normalization passes on what it is given. */
static inline int passes(float value, float low, float high) { return (value > low) & (value < high); }

/* Adds a row to the sums of dy, as the activation passes it on, and of its products with x less the mean. */
static inline void add_row(const float *restrict dy, const float *restrict x, Normal by, int64_t count,
                           float *restrict sum, float *restrict product) {
    const float *restrict mean = by.mean, *restrict scale = by.scale, *restrict beta = by.beta;
    float low = by.low, high = by.high;
    if (!beta) {
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            sum[i] += dy[i];
            product[i] += dy[i] * (x[i] - mean[i]);
        }
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        float distance = x[i] - mean[i];
        float given = passes(distance * scale[i] + beta[i], low, high) ? dy[i] : 0;
        sum[i] += given;
        product[i] += given * distance;
    }
}

static inline Normal from_column(Normal by, int64_t column) {
    return (Normal){by.mean + column, by.scale + column, by.beta ? by.beta + column : NULL, by.low, by.high};
}

/* Both sums over a few columns of a piece. */
static inline void sum_products(Wide dy, Wide x, Normal by, int64_t start, int64_t end, int64_t column, int64_t count,
                                double *restrict total, double *restrict products) {
    float slopes[SPAN], values[SPAN], sum[SPAN], product[SPAN];
    for (int64_t row = start; row < end; row += FLOAT_ROWS) {
        memset(sum, 0, count * sizeof(float));
        memset(product, 0, count * sizeof(float));
        for (int64_t each = row; each < least(row + FLOAT_ROWS, end); each++)
            add_row(read_wide(dy, each, column, count, slopes), read_wide(x, each, column, count, values), by, count,
                    sum, product);
        for (int64_t i = 0; i < count; i++) {
            total[i] += sum[i];
            products[i] += product[i];
        }
    }
}

/* Of a row; more: NULL, or what is added. */
INLINE void derive(const float *dy, const float *x, const float *more, Normal by, const float *slope,
                   const float *offset, int64_t count, float *result, const int masks, const int adds) {
    const float *mean = by.mean, *scale = by.scale, *beta = by.beta;
    float low = by.low, high = by.high;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        float distance = x[i] - mean[i], given = dy[i];
        if (masks)
            given = passes(distance * scale[i] + beta[i], low, high) ? given : 0;
        float value = distance * slope[i] + (given * scale[i] + offset[i]);
        result[i] = adds ? value + more[i] : value;
    }
}

static inline void derive_row(const float *dy, const float *x, const float *more, Normal by, const float *slope,
                              const float *offset, int64_t count, float *result) {
    if (by.beta && more)
        derive(dy, x, more, by, slope, offset, count, result, 1, 1);
    else if (by.beta)
        derive(dy, x, more, by, slope, offset, count, result, 1, 0);
    else if (more)
        derive(dy, x, more, by, slope, offset, count, result, 0, 1);
    else
        derive(dy, x, more, by, slope, offset, count, result, 0, 0);
}

static inline void derive_rows(Wide dy, Wide x, Wide other, Wide dx, Normal by, const float *slope, const float *offset,
                               int64_t start, int64_t end, int64_t columns) {
    float buffers[4][SPAN];
    for (int64_t row = start; row < end; row++)
        for (int64_t column = 0; column < columns; column += SPAN) {
            int64_t count = least(SPAN, columns - column);
            const float *value = read_wide(x, row, column, count, buffers[0]), *more = NULL;
            const float *given = read_wide(dy, row, column, count, buffers[1]);
            if (other.rows.at)
                more = read_wide(other, row, column, count, buffers[2]);
            derive_row(given, value, more, from_column(by, column), slope + column, offset + column, count,
                       target_wide(dx, row, column, buffers[3]));
            write_wide(dx, row, column, count, buffers[3]);
        }
}

#endif
