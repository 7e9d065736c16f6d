/* Batch normalization, with a sum and an activation after it. */
#ifndef BATCH_NORM_H
#define BATCH_NORM_H

#include "numbers.h"

/* Batch normalization of x (rows, channels), statistics of each channel. other: added to the result; y is bounded by low
 * and high. joined: rows that are one; pieces: see sums.h. scratch: `pieces` times 2 * columns float64,
 * and 4 * columns float32 after these, columns = channels * joined. */
void batch_norm(Rows x, Rows other, Rows y, const float *gamma, const float *beta, float *running_mean,
                float *running_var, float *mean, float *inv_std, void *scratch, int64_t rows, int64_t channels,
                int64_t joined, int64_t pieces, double momentum, double epsilon, float low, float high);

/* y of `batch_norm` by given statistics: inv_std, or where it is NULL 1 / sqrt(var + epsilon).
 * scratch: 3 * columns float32. */
void batch_normalize(Rows x, Rows other, Rows y, const float *gamma, const float *beta, const float *mean,
                     const float *inv_std, const float *var, void *scratch, int64_t rows, int64_t channels,
                     int64_t joined, double epsilon, float low, float high);

/* Derivatives of `batch_norm`. beta: NULL, or that of an activation after it, which passes on what lies between low and
 * high; dx.at may be NULL; other: added to dx. scratch: as of `batch_norm`, with 5 * columns float32. */
void batch_norm_derivative(Rows dy, Rows x, Rows other, Rows dx, const float *gamma, const float *beta,
                           const float *mean, const float *inv_std, float *dgamma, float *dbeta, void *scratch,
                           int64_t rows, int64_t channels, int64_t joined, int64_t pieces, float low, float high);

#endif
