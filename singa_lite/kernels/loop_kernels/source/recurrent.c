/* Masks of recurrent layers. */
#include "recurrent.h"

/* Whether a number of any type is 0: all its bytes are, but for the sign of a float, in the last of them. */
static int is_zero(const uint8_t *bytes, int64_t count, int64_t is_float) {
    for (int64_t i = 0; i < count - 1; i++)
        if (bytes[i])
            return 0;
    return !(bytes[count - 1] & (is_float ? 0x7f : 0xff));
}

void mark_seen(const void *mask, uint8_t *seen, int64_t steps, int64_t rows, int64_t step_stride, int64_t row_stride,
               int64_t bytes, int64_t is_float) {
    for (int64_t step = 0; step < steps; step++)
        for (int64_t row = 0; row < rows; row++)
            seen[step * rows + row] =
                !is_zero((const uint8_t *)mask + step * step_stride + row * row_stride, bytes, is_float);
}
