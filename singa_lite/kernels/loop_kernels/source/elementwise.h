/* Element by element, over tensors of any strides, and broadcast. */
#ifndef ELEMENTWISE_H
#define ELEMENTWISE_H

#include "numbers.h"

/* y = the operation (its number in operations.h) of a, b and c, which may be left out, with settings p and q;
 * then the activation of that, also by its number, -1 for none. y may be one of the operands. */
void elementwise(int64_t operation, int64_t activation, Box a, Box b, Box c, Box y, Extents extents, float p, float q);

/* y = x, rounded where y is narrower. */
void copy(Box x, Box y, Extents extents);

#endif
