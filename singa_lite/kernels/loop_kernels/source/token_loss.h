/* Cross entropy of rows of which only some classes are there, and smoothed labels. */
#ifndef TOKEN_LOSS_H
#define TOKEN_LOSS_H

#include "numbers.h"

/* dx = dlosses * (e^(x - lse) - (1 - share) * t - share / classes), columns `first` on of a matrix of `classes`; 0 of a
 * row whose dlosses is 0. */
void softmax_classes_derivative(const float *dlosses, Rows x, const float *lse, Box ids, Extents of_ids,
                                Rows dx, int64_t rows, int64_t columns, int64_t first, int64_t classes, double share);

/* losses += share * (x at the id - mean of x over the row). */
void smooth_labels(Rows x, Box ids, Extents of_ids, float *losses, int64_t rows, int64_t columns,
                   double share);

/* dx += dlosses * share * (t - 1 / columns). */
void smooth_labels_derivative(const float *dlosses, Box ids, Extents of_ids, Rows dx, int64_t rows,
                              int64_t columns, double share);

#endif
