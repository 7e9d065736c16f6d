/* Cross entropy of softmax over the rows of a matrix, classes along the columns. */
#ifndef CROSS_ENTROPY_H
#define CROSS_ENTROPY_H

#include "numbers.h"

/* p = softmax of x; losses = means over each sample's rows, so many `positions` of them, of -sum of t * log(p).
 * t: 1 at the class that an id names; weights.at not NULL: rows of weights, divided by their sum. ids: see ids.h.
 * numbers: float32 of each row; NULL for one position. */
void softmax_cross_entropy(Rows x, Rows p, Rows weights, Box ids, Extents of_ids, float *numbers,
                           float *losses, int64_t rows, int64_t columns, int64_t positions);

/* dx = dlosses / positions * (p - t), 0 of a sample whose dlosses is 0. */
void softmax_cross_entropy_derivative(const float *dlosses, Rows p, Rows weights, Box ids, Extents of_ids,
                                      Rows dx, int64_t rows, int64_t columns, int64_t positions);

#endif
