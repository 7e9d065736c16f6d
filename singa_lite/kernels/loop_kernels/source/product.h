/* Products of matrices that lie in the caches, by the calling thread. */
#ifndef PRODUCT_H
#define PRODUCT_H

#include <stdint.h>

/* Numbers of a vector register. */
#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* The left factor: its element (i, p) is at[i * row + p * column]. */
typedef struct {
    const float *at;
    int64_t row, column;
} Factor;

/* A factor or result whose rows lie without gaps, `pitch` elements from one to the next. */
typedef struct {
    float *at;
    int64_t pitch;
} Lines;

/* c (m, n) += a (m, k) @ b (k, n), or c = a @ b. n: a multiple of LANES. Sums are taken in order of k. */
__attribute__((visibility("hidden"))) void multiply(Factor a, Lines b, Lines c, int64_t m, int64_t n, int64_t k,
                                                    int adds);

/* y (columns, rows) = x (rows, columns) times a factor; both multiples of LANES. */
__attribute__((visibility("hidden"))) void transpose(Lines x, Lines y, int64_t rows, int64_t columns, float factor);

#endif
