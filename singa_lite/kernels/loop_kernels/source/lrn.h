/* Local response normalization. */
#ifndef LRN_H
#define LRN_H

#include "numbers.h"

/* y = x * scale^-beta, scale = k + share * sum of x^2 over `size` neighbouring columns; size at most LRN_SIZE. */
void lrn(Rows x, Rows y, Rows scale, int64_t rows, int64_t columns, int64_t size, float share, float beta, float k);

/* dx = dy * scale^-beta - 2 * beta * share * x * sum of dy * x * scale^(-beta - 1) over the neighbours. */
void lrn_derivative(Rows dy, Rows x, Rows scale, Rows dx, int64_t rows, int64_t columns, int64_t size, float share,
                    float beta);

#endif
