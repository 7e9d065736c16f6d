/* Batch normalization: one pass for the statistics, one for the result.
 *
 *     y  = (x - mean) * scale + beta,                           scale = gamma * inv_std
 *     dx = (x - mean) * slope + (dy * scale + offset),          slope = -scale * inv_std**2 * mean of dy * (x - mean)
 *                                                               offset = -scale * mean of dy
 *
 * Rows of few channels are taken `together`, as one row of columns. Sums are in float32 over BLOCK rows and in float64
 * over these; those of x are of its distance from the mean so far, which is close enough to lose nothing. Rows are cut
 * into pieces by their number alone, and the pieces' sums are added up in order: results are the same for every number
 * of threads. The second pass begins at the last piece, part of which is still in the cache. */
#include "batch_norm.h"

#include "pieces.h"
#include "wide_rows.h"

/* Rows that are added up in float32. */
#define BLOCK 64
/* Rows whose mean is the first centre. */
#define FIRST 16
/* Pieces of a pass without sums. */
#define PARTS 64

#define INLINE static inline __attribute__((always_inline))

typedef struct {
    int64_t rows, columns;
} Size;

/* Vectors of columns. beta: NULL where no activation stands behind the normalization. */
typedef struct {
    const float *mean, *scale, *beta;
    float low, high;
} Normal;

/* Sums of the distances from the centre, and of their squares. */
static void sum_block(Wide x, int64_t start, int64_t end, int64_t column, int64_t count, const float *restrict centre,
                      float *restrict sum, float *restrict square) {
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
static void sum_piece(Wide x, int64_t start, int64_t end, int64_t column, int64_t count, const float *restrict shift,
                      double *restrict total, double *restrict squares) {
    float centre[SPAN], sum[SPAN], square[SPAN];
    int64_t first = least(start + FIRST, end);
    memmove(centre, read_wide(x, start, column, count, centre), count * sizeof(float));
    sum_block(x, start, first, column, count, centre, sum, square);
    for (int64_t i = 0; i < count; i++)
        centre[i] += sum[i] / (first - start);
    for (int64_t row = start; row < end; row += BLOCK) {
        int64_t stop = least(row + BLOCK, end);
        sum_block(x, row, stop, column, count, centre, sum, square);
        double there = (double)(stop - row), share = 1 / (double)(stop - start);
        for (int64_t i = 0; i < count; i++) {
            double apart = (double)centre[i] - shift[i];
            total[i] += sum[i] + there * apart;
            squares[i] += square[i] + apart * (2 * (double)sum[i] + there * apart);
            centre[i] = (float)(shift[i] + total[i] * share);
        }
    }
}

/* The sums of all pieces, and of the rows that were taken together, in the first `channels` of both vectors. */
static void add_sums(double *sums, int64_t pieces, int64_t columns, int64_t channels) {
    add_pieces(sums, pieces, 2 * columns);
    for (int64_t part = channels; part < columns; part += channels)
        for (int64_t i = 0; i < channels; i++) {
            sums[i] += sums[part + i];
            sums[columns + i] += sums[columns + part + i];
        }
}

static void normalize_rows(Wide x, Wide other, Wide y, Normal by, int64_t start, int64_t end, int64_t columns) {
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

static void normalize(Wide x, Wide other, Wide y, Normal by, Size size) {
#pragma omp parallel for schedule(static) if (size.rows * size.columns > SMALL)
    for (int64_t piece = PARTS - 1; piece >= 0; piece--)
        normalize_rows(x, other, y, by, piece_start(piece, PARTS, size.rows), piece_start(piece + 1, PARTS, size.rows),
                       size.columns);
}

void batch_norm(Rows x, Rows other, Rows y, const float *gamma, const float *beta, float *running_mean,
                float *running_var, float *mean, float *inv_std, void *scratch, int64_t rows, int64_t channels,
                int64_t together, int64_t pieces, double momentum, double epsilon, float low, float high) {
    Wide wide = wide_rows(x, rows, channels, together);
    Size size = {rows / together, channels * together};
    double *sums = scratch, count = (double)rows;
    float *shift = (float *)(sums + 2 * size.columns * pieces);
    for (int64_t column = 0; column < channels; column += SPAN) {
        int64_t there = least(SPAN, channels - column);
        memmove(shift + column, read_chunk(x, 0, column, there, shift + column), there * sizeof(float));
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
    repeat(means, mean, channels, together);
    repeat(scales, shift, channels, together);
    repeat(betas, beta, channels, together);
    Normal by = {means, scales, betas, low, high};
    normalize(wide, wide_rows(other, rows, channels, together), wide_rows(y, rows, channels, together), by, size);
}

void batch_normalize(Rows x, Rows other, Rows y, const float *gamma, const float *beta, const float *mean,
                     const float *inv_std, const float *var, void *scratch, int64_t rows, int64_t channels,
                     int64_t together, double epsilon, float low, float high) {
    Size size = {rows / together, channels * together};
    float *scale = scratch, *means = scale + size.columns, *betas = means + size.columns;
    for (int64_t i = 0; i < size.columns; i++) {
        int64_t channel = i % channels;
        scale[i] = gamma[channel] * (inv_std ? inv_std[channel] : (float)(1 / sqrt(var[channel] + epsilon)));
    }
    repeat(means, mean, channels, together);
    repeat(betas, beta, channels, together);
    Normal by = {means, scale, betas, low, high};
    normalize(wide_rows(x, rows, channels, together), wide_rows(other, rows, channels, together),
              wide_rows(y, rows, channels, together), by, size);
}

/* Whether an activation behind the normalization passes on what it is given. */
static inline int passes(float value, float low, float high) { return (value > low) & (value < high); }

/* Adds a row to the sums of dy, as the activation passes it on, and of its products with x less the mean. */
static void add_row(const float *restrict dy, const float *restrict x, Normal by, int64_t count, float *restrict sum,
                    float *restrict product) {
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

static Normal from_column(Normal by, int64_t column) {
    return (Normal){by.mean + column, by.scale + column, by.beta ? by.beta + column : NULL, by.low, by.high};
}

/* Both sums over a few columns of a piece. */
static void sum_products(Wide dy, Wide x, Normal by, int64_t start, int64_t end, int64_t column, int64_t count,
                         double *restrict total, double *restrict products) {
    float slopes[SPAN], values[SPAN], sum[SPAN], product[SPAN];
    for (int64_t row = start; row < end; row += BLOCK) {
        memset(sum, 0, count * sizeof(float));
        memset(product, 0, count * sizeof(float));
        for (int64_t each = row; each < least(row + BLOCK, end); each++)
            add_row(read_wide(dy, each, column, count, slopes), read_wide(x, each, column, count, values), by, count,
                    sum, product);
        for (int64_t i = 0; i < count; i++) {
            total[i] += sum[i];
            products[i] += product[i];
        }
    }
}

/* Of a row; more: NULL, or what is added. */
static inline __attribute__((always_inline)) void derive(const float *dy, const float *x, const float *more, Normal by,
                                                         const float *slope, const float *offset, int64_t count,
                                                         float *result, const int masks, const int adds) {
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

static void derive_row(const float *dy, const float *x, const float *more, Normal by, const float *slope,
                       const float *offset, int64_t count, float *result) {
    if (by.beta)
        derive(dy, x, more, by, slope, offset, count, result, 1, 0);
    else if (more)
        derive(dy, x, more, by, slope, offset, count, result, 0, 1);
    else
        derive(dy, x, more, by, slope, offset, count, result, 0, 0);
}

static void derive_rows(Wide dy, Wide x, Wide other, Wide dx, Normal by, const float *slope, const float *offset,
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
                           int64_t rows, int64_t channels, int64_t together, int64_t pieces, float low, float high) {
    Size size = {rows / together, channels * together};
    Wide slopes = wide_rows(dy, rows, channels, together), values = wide_rows(x, rows, channels, together);
    double *sums = scratch, count = (double)rows;
    float *means = (float *)(sums + 2 * size.columns * pieces);
    float *scale = means + size.columns, *betas = scale + size.columns, *slope = betas + size.columns, *offset = slope + size.columns;
    repeat(means, mean, channels, together);
    if (beta)
        repeat(betas, beta, channels, together);
    for (int64_t i = 0; gamma && i < size.columns; i++)
        scale[i] = gamma[i % channels] * inv_std[i % channels];
    Normal by = {means, scale, beta ? betas : NULL, low, high};
    sums_of_derivative(slopes, values, by, size, channels, pieces, sums);
    for (int64_t i = 0; i < channels; i++) {
        dgamma[i] = (float)(sums[size.columns + i] * inv_std[i]);
        dbeta[i] = (float)sums[i];
    }
    if (!dx.at)
        return;
    for (int64_t i = 0; i < size.columns; i++) {
        double inverse = inv_std[i % channels], share = gamma[i % channels] * inverse / count;
        slope[i] = (float)(-sums[size.columns + i % channels] * inverse * inverse * share);
        offset[i] = (float)(-sums[i % channels] * share);
    }
    Wide results = wide_rows(dx, rows, channels, together), added = wide_rows(other, rows, channels, together);
#pragma omp parallel for schedule(static) if (rows * channels > SMALL)
    for (int64_t piece = PARTS - 1; piece >= 0; piece--)
        derive_rows(slopes, values, added, results, by, slope, offset, piece_start(piece, PARTS, size.rows),
                    piece_start(piece + 1, PARTS, size.rows), size.columns);
}
