/* Products of matrices that lie in the caches: a block of the result is summed up in registers.
 *
 * A block has ROWS rows of VECTORS vectors, or 8 rows of one vector: these are enough sums to hide the time of one
 * addition, and the processor's registers hold them. An element of the left factor is read once for all columns of a
 * block, wherever it lies. */
#include "product.h"

#include "numbers.h"

#if LANES == 16
#define ROWS 4
#define VECTORS 4
#else
#define ROWS 6
#define VECTORS 2
#endif
#define MAX_ROWS 8

INLINE void multiply_block(const int rows, const int vectors, Factor a, Lines b, Lines c, int64_t k, int adds) {
    Vector sums[MAX_ROWS][VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            sums[i][j] = adds ? *(const Vector *)(c.at + i * c.pitch + j * LANES) : (Vector){0};
    for (int64_t p = 0; p < k; p++) {
        const float *line = b.at + p * b.pitch, *column = a.at + p * a.column;
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++)
                sums[i][j] += column[i * a.row] * *(const Vector *)(line + j * LANES);
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            *(Vector *)(c.at + i * c.pitch + j * LANES) = sums[i][j];
}

/* Blocks of so many rows, from row `first` on, while there are as many. Returns the first row that is left. */
INLINE int64_t multiply_rows(const int rows, const int vectors, Factor a, Lines b, Lines c, int64_t first, int64_t m,
                             int64_t k, int adds) {
    for (; first + rows <= m; first += rows)
        multiply_block(rows, vectors, (Factor){a.at + first * a.row, a.row, a.column}, b,
                       (Lines){c.at + first * c.pitch, c.pitch}, k, adds);
    return first;
}

INLINE void multiply_columns(const int vectors, Factor a, Lines b, Lines c, int64_t m, int64_t k, int adds) {
    int64_t left = multiply_rows(vectors == 1 ? MAX_ROWS : ROWS, vectors, a, b, c, 0, m, k, adds);
    left = multiply_rows(4, vectors, a, b, c, left, m, k, adds);
    multiply_rows(1, vectors, a, b, c, left, m, k, adds);
}

void multiply(Factor a, Lines b, Lines c, int64_t m, int64_t n, int64_t k, int adds) {
    for (; n >= VECTORS * LANES; n -= VECTORS * LANES, b.at += VECTORS * LANES, c.at += VECTORS * LANES)
        multiply_columns(VECTORS, a, b, c, m, k, adds);
#if VECTORS == 4
    if (n == 3 * LANES)
        multiply_columns(3, a, b, c, m, k, adds);
    if (n == 2 * LANES)
        multiply_columns(2, a, b, c, m, k, adds);
#endif
    if (n == LANES)
        multiply_columns(1, a, b, c, m, k, adds);
}

typedef int32_t Places __attribute__((vector_size(4 * LANES)));

/* A square of LANES rows: its quarters are swapped, then the quarters of these, down to single numbers. */
static void transpose_block(Lines x, Lines y, float factor) {
    Vector rows[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        rows[i] = *(const Vector *)(x.at + i * x.pitch) * factor;
#pragma GCC unroll 4
    for (int step = LANES / 2; step > 0; step /= 2) {
        Places upper, lower;
#pragma GCC unroll 16
        for (int lane = 0; lane < LANES; lane++) {
            upper[lane] = lane & step ? LANES + lane - step : lane;
            lower[lane] = lane & step ? LANES + lane : lane + step;
        }
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            if (!(i & step)) {
                Vector first = rows[i], second = rows[i + step];
                rows[i] = __builtin_shuffle(first, second, upper);
                rows[i + step] = __builtin_shuffle(first, second, lower);
            }
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        *(Vector *)(y.at + i * y.pitch) = rows[i];
}

void transpose(Lines x, Lines y, int64_t rows, int64_t columns, float factor) {
    for (int64_t i = 0; i < rows; i += LANES)
        for (int64_t j = 0; j < columns; j += LANES)
            transpose_block((Lines){x.at + i * x.pitch + j, x.pitch}, (Lines){y.at + j * y.pitch + i, y.pitch}, factor);
}
