/* Normalizations of rows. A row is gone over two or three times while it is in the cache: once for its first sum, where
 * there is a mean, once for the sums that the result needs, once for the result.
 *
 *     y  = (x - mean) * inverse * gamma + beta
 *     dx = (x - mean) * slope + (g * inverse + offset),   g = dy * gamma,   offset = -inverse * mean of g,
 *                                                         slope = -inverse^3 * mean of g * (x - mean)
 *     y  = x / norm,   dx = (dy - y * sum of dy * y) / norm
 *
 * Sums along a row are in float32 over SEGMENT elements, some 16 in each lane, and in float64 over these; those of
 * squares that float32 may not hold in float64. Gradients are sums over rows: in float32 over FLOAT_ROWS of them. */
#include "row_norm.h"

#include "sums.h"

/* Elements of a row that are added up in float32. */
#define SEGMENT 1024
/* Sums side by side, of SIDE lanes each: what is added to one is not waited for by the next. */
#define UNITS 4
#define TAKEN (UNITS * SIDE)
/* Elements from which on that is faster: adding up the lanes at the end takes time. */
#define LEAST_UNITS 256

/* Of all lanes of all units. */
INLINE float sum_units(const Numbers *sums) { return fold_lanes(SUM, (sums[0] + sums[1]) + (sums[2] + sums[3])); }

/* Sums of the distances of a row's elements from a centre, and of their squares. */
INLINE void sum_row_of(Rows x, int64_t row, int64_t columns, float centre, double *total, double *squares) {
    float buffer[SEGMENT];
    *total = *squares = 0;
    for (int64_t column = 0; column < columns; column += SEGMENT) {
        int64_t count = least(SEGMENT, columns - column), whole = count < LEAST_UNITS ? 0 : count & -TAKEN;
        Numbers sums[UNITS] = {}, others[UNITS] = {};
        for (int64_t i = 0; i < whole; i += TAKEN)
            for (int unit = 0; unit < UNITS; unit++) {
                Numbers distance = numbers_at(x, row, column + i + unit * SIDE) - centre;
                sums[unit] += distance;
                others[unit] += distance * distance;
            }
        if (whole) {
            *total += sum_units(sums);
            *squares += sum_units(others);
        }
        if (whole == count)
            continue;
        const float *a = read_chunk(x, row, column + whole, count - whole, buffer);
        float sum = 0, square = 0;
#pragma omp simd reduction(+ : sum, square)
        for (int64_t i = 0; i < count - whole; i++) {
            float distance = a[i] - centre;
            sum += distance;
            square += distance * distance;
        }
        *total += sum;
        *squares += square;
    }
}

static void sum_row(Rows x, int64_t row, int64_t columns, float centre, double *total, double *squares) {
    if (x.is_narrow)
        sum_row_of((Rows){x.at, x.pitch, 1}, row, columns, centre, total, squares);
    else
        sum_row_of((Rows){x.at, x.pitch, 0}, row, columns, centre, total, squares);
}

static void normalize_row(Rows x, Rows y, int64_t row, const float *gamma, const float *beta, float mean,
                          float inverse, int64_t columns) {
    float from[CHUNK], to[CHUNK];
    for (int64_t column = 0; column < columns; column += CHUNK) {
        int64_t count = least(CHUNK, columns - column);
        const float *a = read_chunk(x, row, column, count, from), *slope = gamma + column;
        float *result = target_chunk(y, row, column, to);
        if (beta) {
#pragma omp simd
            for (int64_t i = 0; i < count; i++)
                result[i] = (a[i] - mean) * inverse * slope[i] + beta[column + i];
        } else {
#pragma omp simd
            for (int64_t i = 0; i < count; i++)
                result[i] = a[i] * inverse * slope[i];
        }
        write_chunk(y, row, column, count, to);
    }
}

void row_norm(Rows x, Rows y, const float *gamma, const float *beta, float *mean, float *inverse, int64_t rows,
              int64_t columns, double epsilon) {
#pragma omp parallel for schedule(static) if (rows * columns > SMALL)
    for (int64_t row = 0; row < rows; row++) {
        float buffer[1], centre = 0;
        double total = 0, squares, count = (double)columns;
        if (mean) {
            float first = read_chunk(x, row, 0, 1, buffer)[0];
            sum_row(x, row, columns, first, &total, &squares);
            centre = (float)(first + total / count);
        }
        sum_row(x, row, columns, centre, &total, &squares);
        double offset = mean ? total / count : 0, var = squares / count - offset * offset;
        inverse[row] = (float)(1 / sqrt((var < 0 ? 0 : var) + epsilon));
        if (mean)
            mean[row] = (float)(centre + offset);
        normalize_row(x, y, row, gamma, beta, mean ? mean[row] : 0, inverse[row], columns);
    }
}

/* Sums of g = dy * gamma, and of its products with the distances from the mean. */
INLINE void sum_products_of(Rows dy, Rows x, int64_t row, const float *gamma, float mean, int64_t columns, double *total,
                            double *products) {
    float slopes[SEGMENT], values[SEGMENT];
    *total = *products = 0;
    for (int64_t column = 0; column < columns; column += SEGMENT) {
        int64_t count = least(SEGMENT, columns - column), whole = count < LEAST_UNITS ? 0 : count & -TAKEN;
        Numbers sums[UNITS] = {}, others[UNITS] = {};
        for (int64_t i = 0; i < whole; i += TAKEN)
            for (int unit = 0; unit < UNITS; unit++) {
                int64_t at = column + i + unit * SIDE;
                Numbers g = numbers_at(dy, row, at) * *(const Numbers *)(gamma + at);
                sums[unit] += g;
                others[unit] += g * (numbers_at(x, row, at) - mean);
            }
        if (whole) {
            *total += sum_units(sums);
            *products += sum_units(others);
        }
        if (whole == count)
            continue;
        int64_t from = column + whole;
        float sum = 0, product = 0;
        const float *a = read_chunk(dy, row, from, count - whole, slopes), *by = gamma + from;
        const float *b = read_chunk(x, row, from, count - whole, values);
#pragma omp simd reduction(+ : sum, product)
        for (int64_t i = 0; i < count - whole; i++) {
            float g = a[i] * by[i];
            sum += g;
            product += g * (b[i] - mean);
        }
        *total += sum;
        *products += product;
    }
}

static void sum_products(Rows dy, Rows x, int64_t row, const float *gamma, float mean, int64_t columns, double *total,
                         double *products) {
    if (dy.is_narrow || x.is_narrow)
        sum_products_of(dy, x, row, gamma, mean, columns, total, products);
    else
        sum_products_of((Rows){dy.at, dy.pitch, 0}, (Rows){x.at, x.pitch, 0}, row, gamma, mean, columns, total, products);
}

static void derive_row(Rows dy, Rows x, Rows dx, int64_t row, const float *gamma, float mean, float inverse,
                       float slope, float offset, int64_t columns) {
    float slopes[CHUNK], values[CHUNK], to[CHUNK];
    for (int64_t column = 0; column < columns; column += CHUNK) {
        int64_t count = least(CHUNK, columns - column);
        const float *a = read_chunk(dy, row, column, count, slopes), *b = read_chunk(x, row, column, count, values);
        const float *by = gamma + column;
        float *result = target_chunk(dx, row, column, to);
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            result[i] = (b[i] - mean) * slope + (a[i] * by[i] * inverse + offset);
        write_chunk(dx, row, column, count, to);
    }
}

void row_norm_derivative(Rows dy, Rows x, Rows dx, const float *gamma, const float *mean, const float *inverse,
                         int64_t rows, int64_t columns) {
#pragma omp parallel for schedule(static) if (rows * columns > SMALL)
    for (int64_t row = 0; row < rows; row++) {
        double total, products, share = inverse[row] / (double)columns;
        float centre = mean ? mean[row] : 0;
        sum_products(dy, x, row, gamma, centre, columns, &total, &products);
        float slope = (float)(-products * inverse[row] * inverse[row] * share);
        if (mean && columns == 1) /* g minus its mean is 0; a fused multiply-add would leave g's rounding error */
            derive_row(dy, x, dx, row, gamma, centre, 0, slope, 0, columns);
        else
            derive_row(dy, x, dx, row, gamma, centre, inverse[row], slope, mean ? (float)(-total * share) : 0, columns);
    }
}

/* Sums over rows of a few columns. */
static void sum_gradients(Rows dy, Rows x, const float *mean, const float *inverse, int64_t start, int64_t end,
                          int64_t column, int64_t count, double *restrict products, double *restrict total) {
    float slopes[CHUNK], values[CHUNK], sum[CHUNK], product[CHUNK];
    for (int64_t row = start; row < end; row += FLOAT_ROWS) {
        memset(sum, 0, count * sizeof(float));
        memset(product, 0, count * sizeof(float));
        for (int64_t each = row; each < least(row + FLOAT_ROWS, end); each++) {
            const float *a = read_chunk(dy, each, column, count, slopes);
            const float *b = read_chunk(x, each, column, count, values);
            float centre = mean ? mean[each] : 0, factor = inverse[each];
#pragma omp simd
            for (int64_t i = 0; i < count; i++) {
                sum[i] += a[i];
                product[i] += a[i] * ((b[i] - centre) * factor);
            }
        }
        for (int64_t i = 0; i < count; i++) {
            total[i] += sum[i];
            products[i] += product[i];
        }
    }
}

void row_norm_gradient(Rows dy, Rows x, const float *mean, const float *inverse, float *dgamma, float *dbeta,
                       void *scratch, int64_t rows, int64_t columns, int64_t pieces) {
    double *sums = scratch;
#pragma omp parallel for schedule(static) if (rows * columns > SMALL)
    for (int64_t piece = 0; piece < pieces; piece++) {
        double *own = sums + 2 * columns * piece;
        memset(own, 0, 2 * columns * sizeof(double));
        for (int64_t column = 0; column < columns; column += CHUNK)
            sum_gradients(dy, x, mean, inverse, piece_start(piece, pieces, rows), piece_start(piece + 1, pieces, rows),
                          column, least(CHUNK, columns - column), own + column, own + columns + column);
    }
    add_pieces(sums, pieces, 2 * columns);
    for (int64_t i = 0; i < columns; i++) {
        dgamma[i] = (float)sums[i];
        if (dbeta)
            dbeta[i] = (float)sums[columns + i];
    }
}

/* Sum of the products of two rows' elements, in float64. */
static double product_of_rows(Rows a, Rows b, int64_t row, int64_t columns) {
    float firsts[CHUNK], seconds[CHUNK];
    double total = 0;
    for (int64_t column = 0; column < columns; column += CHUNK) {
        int64_t count = least(CHUNK, columns - column);
        const float *p = read_chunk(a, row, column, count, firsts), *q = read_chunk(b, row, column, count, seconds);
#pragma omp simd reduction(+ : total)
        for (int64_t i = 0; i < count; i++)
            total += (double)p[i] * q[i];
    }
    return total;
}

void length_norm(Rows x, Rows y, float *norm, int64_t rows, int64_t columns, double epsilon) {
#pragma omp parallel for schedule(static) if (rows * columns > SMALL)
    for (int64_t row = 0; row < rows; row++) {
        float from[CHUNK], to[CHUNK], length = (float)sqrt(product_of_rows(x, x, row, columns) + epsilon);
        norm[row] = length;
        for (int64_t column = 0; column < columns; column += CHUNK) {
            int64_t count = least(CHUNK, columns - column);
            const float *a = read_chunk(x, row, column, count, from);
            float *result = target_chunk(y, row, column, to);
#pragma omp simd
            for (int64_t i = 0; i < count; i++)
                result[i] = a[i] / length;
            write_chunk(y, row, column, count, to);
        }
    }
}

void length_norm_derivative(Rows dy, Rows y, const float *norm, Rows dx, int64_t rows, int64_t columns) {
#pragma omp parallel for schedule(static) if (rows * columns > SMALL)
    for (int64_t row = 0; row < rows; row++) {
        float slopes[CHUNK], values[CHUNK], to[CHUNK], length = norm[row];
        float along = (float)product_of_rows(dy, y, row, columns);
        for (int64_t column = 0; column < columns; column += CHUNK) {
            int64_t count = least(CHUNK, columns - column);
            const float *a = read_chunk(dy, row, column, count, slopes), *b = read_chunk(y, row, column, count, values);
            float *result = target_chunk(dx, row, column, to);
#pragma omp simd
            for (int64_t i = 0; i < count; i++)
                result[i] = (a[i] - b[i] * along) / length;
            write_chunk(dx, row, column, count, to);
        }
    }
}
