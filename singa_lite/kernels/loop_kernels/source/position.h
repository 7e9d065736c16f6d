/* Where in a sequence something stands. */
#ifndef POSITION_H
#define POSITION_H

#include "numbers.h"

/* y = pairs of x turned by the angles of the table, back where is_inverse. x, y: the first halves of the last axis, the
 * others `far` elements further; table: the cosines, the sines `sine` elements further. */
void rotary(Box x, Box table, Box y, Extents extents, int64_t far_of_x, int64_t sine, int64_t far_of_y,
            int64_t is_inverse);

#endif
