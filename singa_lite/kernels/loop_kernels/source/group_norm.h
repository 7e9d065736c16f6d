/* Group normalization: statistics of some channels of one sample. */
#ifndef GROUP_NORM_H
#define GROUP_NORM_H

#include "numbers.h"

/* y = (x - mean) * inv_std * gamma + beta of x (samples * rows, channels); mean, inv_std (samples, groups).
 * scratch: samples times 2 * channels float64 and 3 * channels float32. */
void group_norm(Rows x, Rows y, const float *gamma, const float *beta, float *mean, float *inv_std, void *scratch,
                int64_t samples, int64_t rows, int64_t channels, int64_t groups, double epsilon);

/* scratch: samples times 2 * channels float64 and 4 * channels float32. */
void group_norm_derivative(Rows dy, Rows x, Rows dx, const float *gamma, const float *mean, const float *inv_std,
                           void *scratch, int64_t samples, int64_t rows, int64_t channels, int64_t groups);

/* scratch: samples times 2 * channels float64 and channels float32. */
void group_norm_gradient(Rows dy, Rows x, const float *mean, const float *inv_std, float *dgamma, float *dbeta,
                         void *scratch, int64_t samples, int64_t rows, int64_t channels, int64_t groups);

#endif
