/* Normalizations of rows: by mean and deviation, by the root of the mean square, by length. */
#ifndef ROW_NORM_H
#define ROW_NORM_H

#include "numbers.h"

/* y = (x - mean) * inverse * gamma + beta, inverse = 1 / sqrt(var + epsilon), of each row of x (rows, columns).
 * mean, beta: NULL for the root mean square, var = mean of x^2. */
void row_norm(Rows x, Rows y, const float *gamma, const float *beta, float *mean, float *inverse, int64_t rows,
              int64_t columns, double epsilon);

/* dx = inverse * (g - mean of g - (x - mean) * inverse^2 * mean of g * (x - mean)), g = dy * gamma, of each row; without
 * the means of x and g where mean is NULL. */
void row_norm_derivative(Rows dy, Rows x, Rows dx, const float *gamma, const float *mean, const float *inverse,
                         int64_t rows, int64_t columns);

/* dgamma = sum of dy * (x - mean) * inverse, dbeta = sum of dy over rows. mean, dbeta: NULL for the root mean square.
 * scratch: `pieces` times 2 * columns float64. */
void row_norm_gradient(Rows dy, Rows x, const float *mean, const float *inverse, float *dgamma, float *dbeta,
                       void *scratch, int64_t rows, int64_t columns, int64_t pieces);

/* y = x / norm, norm = sqrt(sum of x^2 + epsilon), of each row. */
void length_norm(Rows x, Rows y, float *norm, int64_t rows, int64_t columns, double epsilon);

/* dx = (dy - y * sum of dy * y) / norm, of each row. */
void length_norm_derivative(Rows dy, Rows y, const float *norm, Rows dx, int64_t rows, int64_t columns);

#endif
