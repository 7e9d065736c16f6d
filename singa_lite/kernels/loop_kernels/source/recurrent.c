/* Masks of recurrent layers: seen (t, n) = mask (n, t) != 0, for numbers of any type. */
#include "recurrent.h"

void mark_seen(const void *mask, uint8_t *seen, int64_t steps, int64_t rows, int64_t step_stride, int64_t row_stride,
               int64_t bytes, int64_t is_float) {
    for (int64_t step = 0; step < steps; step++)
        for (int64_t row = 0; row < rows; row++)
            seen[step * rows + row] =
                !is_zero((const char *)mask + step * step_stride + row * row_stride, bytes, is_float);
}
