/* Element by element, over tensors of any strides. */
#ifndef ELEMENTWISE_H
#define ELEMENTWISE_H

#include "numbers.h"

/* y = x, rounded where y is narrower. */
void copy(Box x, Box y, Extents extents);

#endif
