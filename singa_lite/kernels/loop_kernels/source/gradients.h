/* Gradients and other tensors of parameters: added, scaled and clipped in place. */
#ifndef GRADIENTS_H
#define GRADIENTS_H

#include "numbers.h"

/* Sums of squares that are made before they are added up: the scratch has a float64 for each. */
#define PARTIAL_SUMS 4096

/* y += alpha * x. */
void add_scaled(Rows x, Rows y, int64_t rows, int64_t columns, float alpha);

/* y = min(max(y, -threshold), threshold); NaN stays NaN. */
void clip_elements(Rows y, int64_t rows, int64_t columns, float threshold);

/* y *= factor, where that is not 1. */
void scale_by(const double *factor, Rows y, int64_t rows, int64_t columns);

/* total += the sum of x**2, row by row. scratch: PARTIAL_SUMS float64. */
void add_squares(Rows x, double *total, double *scratch, int64_t rows, int64_t columns);

/* y *= threshold / norm, where the root of the sum of y**2, the norm, is larger. scratch: as of `add_squares`. */
void clip_norm(Rows y, double *scratch, int64_t rows, int64_t columns, double threshold);

#endif
