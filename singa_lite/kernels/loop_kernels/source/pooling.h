/* Two-dimensional pooling of images whose channels lie innermost: a row of channels is a pixel. */
#ifndef POOLING_H
#define POOLING_H

#include "numbers.h"

/* sizes: images, height, width, height and width of y, channels; window: its height and width, its steps down and across,
 * padding above and on the left. */

/* y = the largest of each window, the first NaN before all; index: its number in the window, in so many bytes (1 or 4);
 * NULL: not wanted. */
void max_pool2d(Rows x, Rows y, void *index, int64_t bytes, Extents sizes, Extents window);

/* dx = dy added where the index says. */
void max_pool2d_derivative(Rows dy, const void *index, int64_t bytes, Rows dx, Extents sizes, Extents window);

/* y = means of windows: of all their taps for count_pad, else of the elements of x in them. */
void avg_pool2d(Rows x, Rows y, Extents sizes, Extents window, int64_t count_pad);

/* dx = dy divided by the count of its window, added to all of the window. */
void avg_pool2d_derivative(Rows dy, Rows dx, Extents sizes, Extents window, int64_t count_pad);

#endif
