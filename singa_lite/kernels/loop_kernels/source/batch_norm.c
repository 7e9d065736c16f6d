/* Batch normalization: one pass for the statistics, one for the result.
 *
 *     scale = gamma * inv_std,   slope = -scale * inv_std^2 * mean of dy * (x - mean),   offset = -scale * mean of dy
 *
 * Rows of few channels are joined: so many of them are one row of columns. Rows are cut into pieces, see sums.h. The
 * second pass begins at the last piece, part of which is still in the cache. */
#include "batch_norm.h"

#include "column_norm.h"

/* Pieces of a pass without sums. */
#define PARTS 64

typedef struct {
    int64_t rows, columns;
} Size;

/* The sums of all pieces, and of the rows that were joined, in the first `channels` of both vectors. */
static void add_sums(double *sums, int64_t pieces, int64_t columns, int64_t channels) {
    add_pieces(sums, pieces, 2 * columns);
    for (int64_t part = channels; part < columns; part += channels)
        for (int64_t i = 0; i < channels; i++) {
            sums[i] += sums[part + i];
            sums[columns + i] += sums[columns + part + i];
        }
}

static void normalize(Wide x, Wide other, Wide y, Normal by, Size size) {
#pragma omp parallel for schedule(static) if (size.rows * size.columns > SMALL)
    for (int64_t piece = PARTS - 1; piece >= 0; piece--)
        normalize_rows(x, other, y, by, piece_start(piece, PARTS, size.rows), piece_start(piece + 1, PARTS, size.rows),
                       size.columns);
}

void batch_norm(Rows x, Rows other, Rows y, const float *gamma, const float *beta, float *running_mean,
                float *running_var, float *mean, float *inv_std, void *scratch, int64_t rows, int64_t channels,
                int64_t joined, int64_t pieces, double momentum, double epsilon, float low, float high) {
    Wide wide = wide_rows(x, rows, channels, joined);
    Size size = {rows / joined, channels * joined};
    double *sums = scratch, count = (double)rows;
    float *shift = (float *)(sums + 2 * size.columns * pieces);
    for (int64_t column = 0; column < channels; column += SPAN) {
        int64_t width = least(SPAN, channels - column);
        memmove(shift + column, read_chunk(x, 0, column, width, shift + column), width * sizeof(float));
    }
    for (int64_t part = channels; part < size.columns; part += channels)
        memcpy(shift + part, shift, channels * sizeof(float));
#pragma omp parallel for schedule(static) if (rows * channels > SMALL)
    for (int64_t piece = 0; piece < pieces; piece++) {
        double *total = sums + 2 * size.columns * piece;
        memset(total, 0, 2 * size.columns * sizeof(double));
        for (int64_t column = 0; column < size.columns; column += SPAN)
            sum_piece(wide, piece_start(piece, pieces, size.rows), piece_start(piece + 1, pieces, size.rows), column,
                      least(SPAN, size.columns - column), shift + column, total + column,
                      total + size.columns + column);
    }
    add_sums(sums, pieces, size.columns, channels);
    float *means = shift + size.columns, *scales = means + size.columns, *betas = scales + size.columns;
#pragma omp simd
    for (int64_t i = 0; i < channels; i++) {
        double offset = sums[i] / count, var = sums[size.columns + i] / count - offset * offset;
        var = var < 0 ? 0 : var;
        double unbiased = rows > 1 ? var * count / (count - 1) : var;
        mean[i] = (float)(shift[i] + offset);
        inv_std[i] = (float)(1 / sqrt(var + epsilon));
        running_mean[i] = (float)((1 - momentum) * running_mean[i] + momentum * (shift[i] + offset));
        running_var[i] = (float)((1 - momentum) * running_var[i] + momentum * unbiased);
        shift[i] = gamma[i] * inv_std[i];
    }
    repeat(means, mean, channels, joined);
    repeat(scales, shift, channels, joined);
    repeat(betas, beta, channels, joined);
    Normal by = {means, scales, betas, low, high};
    normalize(wide, wide_rows(other, rows, channels, joined), wide_rows(y, rows, channels, joined), by, size);
}

void batch_normalize(Rows x, Rows other, Rows y, const float *gamma, const float *beta, const float *mean,
                     const float *inv_std, const float *var, void *scratch, int64_t rows, int64_t channels,
                     int64_t joined, double epsilon, float low, float high) {
    Size size = {rows / joined, channels * joined};
    float *scale = scratch, *means = scale + size.columns, *betas = means + size.columns;
#pragma omp simd
    for (int64_t i = 0; i < channels; i++)
        scale[i] = gamma[i] * (inv_std ? inv_std[i] : (float)(1 / sqrt(var[i] + epsilon)));
    repeat(scale + channels, scale, channels, joined - 1);
    repeat(means, mean, channels, joined);
    repeat(betas, beta, channels, joined);
    Normal by = {means, scale, betas, low, high};
    normalize(wide_rows(x, rows, channels, joined), wide_rows(other, rows, channels, joined),
              wide_rows(y, rows, channels, joined), by, size);
}

/* Sums of dy and of its products with x less the mean, of each channel. */
static void sums_of_derivative(Wide dy, Wide x, Normal by, Size size, int64_t channels, int64_t pieces, double *sums) {
#pragma omp parallel for schedule(static) if (size.rows * size.columns > SMALL)
    for (int64_t piece = 0; piece < pieces; piece++) {
        double *total = sums + 2 * size.columns * piece;
        memset(total, 0, 2 * size.columns * sizeof(double));
        for (int64_t column = 0; column < size.columns; column += SPAN)
            sum_products(dy, x, from_column(by, column), piece_start(piece, pieces, size.rows),
                         piece_start(piece + 1, pieces, size.rows), column, least(SPAN, size.columns - column),
                         total + column, total + size.columns + column);
    }
    add_sums(sums, pieces, size.columns, channels);
}

void batch_norm_derivative(Rows dy, Rows x, Rows other, Rows dx, const float *gamma, const float *beta,
                           const float *mean, const float *inv_std, float *dgamma, float *dbeta, void *scratch,
                           int64_t rows, int64_t channels, int64_t joined, int64_t pieces, float low, float high) {
    Size size = {rows / joined, channels * joined};
    Wide slopes = wide_rows(dy, rows, channels, joined), values = wide_rows(x, rows, channels, joined);
    double *sums = scratch, count = (double)rows;
    float *means = (float *)(sums + 2 * size.columns * pieces);
    float *scale = means + size.columns, *betas = scale + size.columns;
    float *slope = betas + size.columns, *offset = slope + size.columns;
    repeat(means, mean, channels, joined);
    if (beta)
        repeat(betas, beta, channels, joined);
    for (int64_t i = 0; gamma && i < channels; i++)
        scale[i] = gamma[i] * inv_std[i];
    repeat(scale + channels, scale, channels, joined - 1);
    Normal by = {means, scale, beta ? betas : NULL, low, high};
    sums_of_derivative(slopes, values, by, size, channels, pieces, sums);
    for (int64_t i = 0; i < channels; i++) {
        dgamma[i] = (float)(sums[size.columns + i] * inv_std[i]);
        dbeta[i] = (float)sums[i];
    }
    if (!dx.at)
        return;
#pragma omp simd
    for (int64_t i = 0; i < channels; i++) {
        double inverse = inv_std[i], share = scale[i] / count; /* of the rounded scale, so that dx adds up to 0 */
        slope[i] = (float)(-sums[size.columns + i] * inverse * inverse * share);
        offset[i] = (float)(-sums[i] * share);
    }
    repeat(slope + channels, slope, channels, joined - 1);
    repeat(offset + channels, offset, channels, joined - 1);
    Wide results = wide_rows(dx, rows, channels, joined), added = wide_rows(other, rows, channels, joined);
#pragma omp parallel for schedule(static) if (rows * channels > SMALL)
    for (int64_t piece = PARTS - 1; piece >= 0; piece--)
        derive_rows(slopes, values, added, results, by, slope, offset, piece_start(piece, PARTS, size.rows),
                    piece_start(piece + 1, PARTS, size.rows), size.columns);
}
