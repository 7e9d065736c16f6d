/* Local response normalization: each row in one pass, some columns at a time with their neighbours on both sides.
 *
 *     scale = k + share * sum of x^2 over `size` neighbours,   y = x * scale^-beta
 *     dx = dy * scale^-beta - 2 * beta * share * x * sum of dy * x * scale^(-beta - 1) over the neighbours */
#include "lrn.h"

/* Columns of a window at most, and those of a chunk with all neighbours. */
#define LRN_SIZE 65
#define PADDED (CHUNK + LRN_SIZE)

/* Columns `from` to `to` of a row are there, `count` of the results from `column` on. */
typedef struct {
    int64_t column, count, from, to, half;
} Part;

static Part part_at(int64_t column, int64_t columns, int64_t size) {
    int64_t half = size / 2, count = least(CHUNK, columns - column);
    return (Part){column, count, column > half ? column - half : 0, least(columns, column + count + half), half};
}

/* scale^-beta. */
static void powers(const float *scale, int64_t count, float beta, float *restrict result) {
    if (beta == 0.75f) {
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            float root = sqrtf(scale[i]);
            result[i] = 1 / (root * sqrtf(root));
        }
        return;
    }
    for (int64_t i = 0; i < count; i++)
        result[i] = powf(scale[i], -beta);
}

/* Sums over the window of each column of a part. values: of the columns that are there; padded: zeros around them. */
static void window_sums(const float *values, Part part, int64_t size, float *restrict padded, float *restrict sums) {
    memset(padded, 0, (part.count + size) * sizeof(float));
    memcpy(padded + part.from - (part.column - part.half), values, (part.to - part.from) * sizeof(float));
    memset(sums, 0, part.count * sizeof(float));
    for (int64_t shift = 0; shift < size; shift++) {
        const float *from = padded + shift;
#pragma omp simd
        for (int64_t i = 0; i < part.count; i++)
            sums[i] += from[i];
    }
}

void lrn(Rows x, Rows y, Rows scale, int64_t rows, int64_t columns, int64_t size, float share, float beta, float k) {
#pragma omp parallel for schedule(static) if (rows * columns > SMALL)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column += CHUNK) {
            float from[PADDED], squares[PADDED], padded[PADDED], sums[CHUNK], scales[CHUNK], to[CHUNK];
            Part part = part_at(column, columns, size);
            const float *a = read_chunk(x, row, part.from, part.to - part.from, from);
            for (int64_t i = 0; i < part.to - part.from; i++)
                squares[i] = a[i] * a[i];
            window_sums(squares, part, size, padded, sums);
            float *own = target_chunk(scale, row, column, scales), *result = target_chunk(y, row, column, to);
            for (int64_t i = 0; i < part.count; i++)
                own[i] = k + share * sums[i];
            powers(own, part.count, beta, sums);
            for (int64_t i = 0; i < part.count; i++)
                result[i] = a[column - part.from + i] * sums[i];
            write_chunk(scale, row, column, part.count, own);
            write_chunk(y, row, column, part.count, result);
        }
}

void lrn_derivative(Rows dy, Rows x, Rows scale, Rows dx, int64_t rows, int64_t columns, int64_t size, float share,
                    float beta) {
#pragma omp parallel for schedule(static) if (rows * columns > SMALL)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column += CHUNK) {
            float buffers[3][PADDED], factors[PADDED], terms[PADDED], padded[PADDED], sums[CHUNK], to[CHUNK];
            Part part = part_at(column, columns, size);
            int64_t width = part.to - part.from, first = column - part.from;
            const float *a = read_chunk(dy, row, part.from, width, buffers[0]);
            const float *b = read_chunk(x, row, part.from, width, buffers[1]);
            const float *s = read_chunk(scale, row, part.from, width, buffers[2]);
            powers(s, width, beta, factors);
            for (int64_t i = 0; i < width; i++)
                terms[i] = a[i] * b[i] * factors[i] / s[i];
            window_sums(terms, part, size, padded, sums);
            float *result = target_chunk(dx, row, column, to);
            for (int64_t i = 0; i < part.count; i++)
                result[i] = a[first + i] * factors[first + i] - 2 * beta * share * b[first + i] * sums[i];
            write_chunk(dx, row, column, part.count, result);
        }
}
