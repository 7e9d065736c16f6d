/* Sums and extremes along axes. */
#ifndef REDUCTION_H
#define REDUCTION_H

#include "numbers.h"

/* y = alpha * sums of x. kept: axes of x that y has, without the innermost one if that is a row of `width` elements in
 * memory, each with a result of its own, `y_step` apart (y_step > 0); y: the same axes of y.
 * summed: the other axes; y_step = 0: without the innermost one, a row of `width` elements that go into one result.
 * pieces: into which what is added up for a result is cut; scratch: a float64 for each result and piece, if there are
 * several. */
void reduce_sum(Box x, Box y, Extents kept, Box across, Extents summed, int64_t width, int64_t y_step, int64_t pieces,
                double *scratch, double alpha);

/* The largest in place of the sum, NaN where one is. alpha is 1. */
void reduce_max(Box x, Box y, Extents kept, Box across, Extents summed, int64_t width, int64_t y_step, int64_t pieces,
                double *scratch, double alpha);

/* The smallest, as of `reduce_max`. */
void reduce_min(Box x, Box y, Extents kept, Box across, Extents summed, int64_t width, int64_t y_step, int64_t pieces,
                double *scratch, double alpha);

#endif
