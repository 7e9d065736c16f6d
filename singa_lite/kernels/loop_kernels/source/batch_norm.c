/* Batch normalization: one pass for the statistics, one for the result.
 *
 * Sums are in float64, of the distance from each column's first element. Rows are cut into pieces by their number
 * alone, and the pieces' sums are added up in order, so that results are the same for every number of threads. */
#include "batch_norm.h"

/* Rows that are added up at a time, before the sum is put back. */
#define TOGETHER 4

typedef struct {
    const float *mean, *scale, *beta;
} Normal;

static int64_t piece_start(int64_t piece, int64_t pieces, int64_t rows) { return rows * piece / pieces; }

/* Where a chunk of each of up to TOGETHER rows is; those beyond the last one are the last one. */
static int64_t read_rows(Rows x, int64_t row, int64_t end, int64_t column, int64_t count,
                         float buffers[TOGETHER][CHUNK], const float *found[TOGETHER]) {
    int64_t there = least(TOGETHER, end - row);
    for (int64_t i = 0; i < TOGETHER; i++)
        found[i] = i < there ? read_chunk(x, row + i, column, count, buffers[i]) : found[there - 1];
    return there;
}

static void sum_piece(Rows x, const float *shift, int64_t start, int64_t end, int64_t columns, double *total,
                      double *squares) {
    float buffers[TOGETHER][CHUNK];
    const float *rows[TOGETHER];
    for (int64_t column = 0; column < columns; column += CHUNK) {
        int64_t count = least(CHUNK, columns - column);
        const float *from = shift + column;
        double *sum = total + column, *square = squares + column;
        for (int64_t row = start; row < end; row += TOGETHER) {
            int64_t there = read_rows(x, row, end, column, count, buffers, rows);
            const float *a = rows[0], *b = rows[1], *c = rows[2], *d = rows[3];
            if (there == TOGETHER) {
#pragma omp simd
                for (int64_t i = 0; i < count; i++) {
                    double p = (double)a[i] - from[i], q = (double)b[i] - from[i];
                    double r = (double)c[i] - from[i], s = (double)d[i] - from[i];
                    sum[i] += (p + q) + (r + s);
                    square[i] += (p * p + q * q) + (r * r + s * s);
                }
                continue;
            }
            for (int64_t each = 0; each < there; each++) {
                const float *one = rows[each];
#pragma omp simd
                for (int64_t i = 0; i < count; i++) {
                    double p = (double)one[i] - from[i];
                    sum[i] += p;
                    square[i] += p * p;
                }
            }
        }
    }
}

/* The sums of the pieces, added to those of the first. */
static void add_pieces(double *sums, int64_t pieces, int64_t width) {
#pragma omp parallel for schedule(static) if (pieces * width > SMALL)
    for (int64_t start = 0; start < width; start += CHUNK) {
        int64_t end = least(width, start + CHUNK);
        for (int64_t piece = 1; piece < pieces; piece++) {
            const double *of = sums + piece * width;
#pragma omp simd
            for (int64_t i = start; i < end; i++)
                sums[i] += of[i];
        }
    }
}

static void normalize_rows(Rows x, Rows other, Rows y, Normal by, int64_t start, int64_t end, int64_t columns,
                           float low, float high) {
    float from[CHUNK], more[CHUNK], to[CHUNK];
    for (int64_t row = start; row < end; row++)
        for (int64_t column = 0; column < columns; column += CHUNK) {
            int64_t count = least(CHUNK, columns - column);
            const float *a = read_chunk(x, row, column, count, from);
            const float *mean = by.mean + column, *scale = by.scale + column, *beta = by.beta + column;
            float *result = target_chunk(y, row, column, to);
            if (other.at) {
                const float *b = read_chunk(other, row, column, count, more);
#pragma omp simd
                for (int64_t i = 0; i < count; i++) {
                    float value = (a[i] - mean[i]) * scale[i] + beta[i] + b[i];
                    value = value < low ? low : value;
                    result[i] = value > high ? high : value;
                }
            } else {
#pragma omp simd
                for (int64_t i = 0; i < count; i++) {
                    float value = (a[i] - mean[i]) * scale[i] + beta[i];
                    value = value < low ? low : value;
                    result[i] = value > high ? high : value;
                }
            }
            write_chunk(y, row, column, count, to);
        }
}

static void normalize(Rows x, Rows other, Rows y, Normal by, int64_t rows, int64_t columns, float low, float high) {
#pragma omp parallel for schedule(static) if (rows * columns > SMALL)
    for (int64_t piece = 0; piece < 64; piece++)
        normalize_rows(x, other, y, by, piece_start(piece, 64, rows), piece_start(piece + 1, 64, rows), columns, low,
                       high);
}

void batch_norm(Rows x, Rows other, Rows y, const float *gamma, const float *beta, float *running_mean,
                float *running_var, float *mean, float *inv_std, void *scratch, int64_t rows, int64_t columns,
                int64_t pieces, double momentum, double epsilon, float low, float high) {
    double *sums = scratch, count = (double)rows;
    float *shift = (float *)(sums + 2 * columns * pieces), *scale = shift + columns;
    for (int64_t column = 0; column < columns; column += CHUNK) {
        int64_t there = least(CHUNK, columns - column);
        memmove(shift + column, read_chunk(x, 0, column, there, shift + column), there * sizeof(float));
    }
#pragma omp parallel for schedule(static) if (rows * columns > SMALL)
    for (int64_t piece = 0; piece < pieces; piece++) {
        double *own = sums + 2 * columns * piece;
        memset(own, 0, 2 * columns * sizeof(double));
        sum_piece(x, shift, piece_start(piece, pieces, rows), piece_start(piece + 1, pieces, rows), columns, own,
                  own + columns);
    }
    add_pieces(sums, pieces, 2 * columns);
    for (int64_t i = 0; i < columns; i++) {
        double offset = sums[i] / count, var = sums[columns + i] / count - offset * offset;
        var = var < 0 ? 0 : var;
        double unbiased = rows > 1 ? var * count / (count - 1) : var;
        mean[i] = (float)(shift[i] + offset);
        inv_std[i] = (float)(1 / sqrt(var + epsilon));
        running_mean[i] = (float)((1 - momentum) * running_mean[i] + momentum * (shift[i] + offset));
        running_var[i] = (float)((1 - momentum) * running_var[i] + momentum * unbiased);
        scale[i] = gamma[i] * inv_std[i];
    }
    normalize(x, other, y, (Normal){mean, scale, beta}, rows, columns, low, high);
}

void batch_normalize(Rows x, Rows other, Rows y, const float *gamma, const float *beta, const float *mean,
                     const float *inv_std, const float *var, void *scratch, int64_t rows, int64_t columns,
                     double epsilon, float low, float high) {
    float *scale = scratch;
    for (int64_t i = 0; i < columns; i++)
        scale[i] = inv_std ? gamma[i] * inv_std[i] : (float)(gamma[i] / sqrt(var[i] + epsilon));
    normalize(x, other, y, (Normal){mean, scale, beta}, rows, columns, low, high);
}

/* dy as an activation behind the normalization passes it on. */
static const float *passed(const float *dy, const float *x, Normal by, int64_t column, int64_t count, float low,
                           float high, float *buffer) {
    if (!by.beta)
        return dy;
    const float *mean = by.mean + column, *scale = by.scale + column, *beta = by.beta + column;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        float value = (x[i] - mean[i]) * scale[i] + beta[i];
        buffer[i] = (value > low) & (value < high) ? dy[i] : 0;
    }
    return buffer;
}

static void sum_products(Rows dy, Rows x, Normal by, int64_t start, int64_t end, int64_t columns, float low,
                         float high, double *total, double *products) {
    float buffers[3][TOGETHER][CHUNK];
    const float *slopes[TOGETHER], *values[TOGETHER];
    for (int64_t column = 0; column < columns; column += CHUNK) {
        int64_t count = least(CHUNK, columns - column);
        const float *mean = by.mean + column;
        double *sum = total + column, *product = products + column;
        for (int64_t row = start; row < end; row += TOGETHER) {
            int64_t there = read_rows(dy, row, end, column, count, buffers[0], slopes);
            read_rows(x, row, end, column, count, buffers[1], values);
            for (int64_t each = 0; each < there; each++)
                slopes[each] = passed(slopes[each], values[each], by, column, count, low, high, buffers[2][each]);
            if (there == TOGETHER) {
                const float *a = values[0], *b = values[1], *c = values[2], *d = values[3];
                const float *p = slopes[0], *q = slopes[1], *r = slopes[2], *s = slopes[3];
#pragma omp simd
                for (int64_t i = 0; i < count; i++) {
                    double m = mean[i];
                    sum[i] += ((double)p[i] + q[i]) + ((double)r[i] + s[i]);
                    product[i] += (p[i] * (a[i] - m) + q[i] * (b[i] - m)) + (r[i] * (c[i] - m) + s[i] * (d[i] - m));
                }
                continue;
            }
            for (int64_t each = 0; each < there; each++) {
                const float *a = values[each], *p = slopes[each];
#pragma omp simd
                for (int64_t i = 0; i < count; i++) {
                    sum[i] += p[i];
                    product[i] += p[i] * ((double)a[i] - mean[i]);
                }
            }
        }
    }
}

static void derive_rows(Rows dy, Rows x, Rows other, Rows dx, Normal by, const float *slope, const float *offset,
                        int64_t start, int64_t end, int64_t columns, float low, float high) {
    float buffers[5][CHUNK];
    for (int64_t row = start; row < end; row++)
        for (int64_t column = 0; column < columns; column += CHUNK) {
            int64_t count = least(CHUNK, columns - column);
            const float *value = read_chunk(x, row, column, count, buffers[0]);
            const float *given = read_chunk(dy, row, column, count, buffers[1]);
            given = passed(given, value, by, column, count, low, high, buffers[2]);
            const float *mean = by.mean + column, *scale = by.scale + column, *a = slope + column, *b = offset + column;
            float *result = target_chunk(dx, row, column, buffers[3]);
            if (other.at) {
                const float *more = read_chunk(other, row, column, count, buffers[4]);
#pragma omp simd
                for (int64_t i = 0; i < count; i++)
                    result[i] = ((value[i] - mean[i]) * a[i] + b[i] + given[i]) * scale[i] + more[i];
            } else {
#pragma omp simd
                for (int64_t i = 0; i < count; i++)
                    result[i] = ((value[i] - mean[i]) * a[i] + b[i] + given[i]) * scale[i];
            }
            write_chunk(dx, row, column, count, buffers[3]);
        }
}

void batch_norm_derivative(Rows dy, Rows x, Rows other, Rows dx, const float *gamma, const float *beta,
                           const float *mean, const float *inv_std, float *dgamma, float *dbeta, void *scratch,
                           int64_t rows, int64_t columns, int64_t pieces, float low, float high) {
    double *sums = scratch, count = (double)rows;
    float *scale = (float *)(sums + 2 * columns * pieces), *slope = scale + columns, *offset = slope + columns;
    for (int64_t i = 0; gamma && i < columns; i++)
        scale[i] = gamma[i] * inv_std[i];
    Normal by = {mean, scale, beta};
#pragma omp parallel for schedule(static) if (rows * columns > SMALL)
    for (int64_t piece = 0; piece < pieces; piece++) {
        double *own = sums + 2 * columns * piece;
        memset(own, 0, 2 * columns * sizeof(double));
        sum_products(dy, x, by, piece_start(piece, pieces, rows), piece_start(piece + 1, pieces, rows), columns, low,
                     high, own, own + columns);
    }
    add_pieces(sums, pieces, 2 * columns);
    for (int64_t i = 0; i < columns; i++) {
        double product = sums[columns + i] * inv_std[i];
        dgamma[i] = (float)product;
        dbeta[i] = (float)sums[i];
        slope[i] = (float)(-product * inv_std[i] / count);
        offset[i] = (float)(-sums[i] / count);
    }
    if (!dx.at)
        return;
#pragma omp parallel for schedule(static) if (rows * columns > SMALL)
    for (int64_t piece = 0; piece < 64; piece++)
        derive_rows(dy, x, other, dx, by, slope, offset, piece_start(piece, 64, rows), piece_start(piece + 1, 64, rows),
                    columns, low, high);
}
