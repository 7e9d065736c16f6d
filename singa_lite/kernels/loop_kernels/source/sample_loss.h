/* Losses that are means over the elements of a sample. */
#ifndef SAMPLE_LOSS_H
#define SAMPLE_LOSS_H

#include "numbers.h"

/* losses = means over each row of max(x, 0) - x * t + log(1 + e^-|x|). scratch: `pieces` numbers of each row. */
void sigmoid_cross_entropy(Rows x, Rows target, float *losses, double *scratch, int64_t rows, int64_t columns,
                           int64_t pieces);

/* losses = means over each row of q * (2 * |r| - q) / 2, r = x - t, q = the smaller of |r| and delta. */
void huber(Rows x, Rows target, float *losses, double *scratch, int64_t rows, int64_t columns, int64_t pieces,
           float delta);

#endif
