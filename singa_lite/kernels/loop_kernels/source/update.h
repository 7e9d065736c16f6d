/* Updates of optimizers, in place. rate: where it is NaN nothing changes; count: updates so far, one is added.
 *
 * Gradient, value and state are of one shape (rows, columns) and lie alike without gaps. bits: of the state, 32, 16 or
 * 8; the rows matter for 8 bits only. codes: of state with a sign, and of squares; read for 8 bits only. */
#ifndef UPDATE_H
#define UPDATE_H

#include "state_format.h"

/* velocity: NULL without momentum. */
void sgd(const float *gradient, const double *rate, float *value, void *velocity, int64_t *count, const void *codes,
         int64_t rows, int64_t columns, int64_t bits, double momentum, double dampening, int64_t nesterov,
         double weight_decay, double lr_mult);

/* squares = kept * squares + share * g**2, of RMSprop and Adagrad. */
void scaled_by_squares(const float *gradient, const double *rate, float *value, void *squares, int64_t *count,
                       const void *codes, int64_t rows, int64_t columns, int64_t bits, double kept, double share,
                       double epsilon, double weight_decay, double lr_mult);

/* largest: of the second moments, NULL for Adam. decay: of the value, of AdamW; weight_decay: goes into g. */
void adam(const float *gradient, const double *rate, float *value, void *first, void *second, void *largest,
          int64_t *count, const void *codes, const void *square_codes, int64_t rows, int64_t columns, int64_t bits,
          double beta_1, double beta_2, double epsilon, double weight_decay, double decay, double lr_mult);

/* decay: of the value. */
void lion(const float *gradient, const double *rate, float *value, void *momentum, int64_t *count, const void *codes,
          int64_t rows, int64_t columns, int64_t bits, double beta_1, double beta_2, double decay, double lr_mult);

#endif
