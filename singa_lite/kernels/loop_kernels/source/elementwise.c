/* Element by element, over tensors of any strides. */
#include "elementwise.h"

static void copy_line(Box x, Box y, int64_t from, int64_t to, int64_t count) {
    int64_t a = x.steps[AXES - 1], b = y.steps[AXES - 1];
    if (x.is_narrow && y.is_narrow)
        for (int64_t i = 0; i < count; i++)
            ((uint16_t *)y.at)[to + i * b] = ((const uint16_t *)x.at)[from + i * a];
    else if (x.is_narrow)
        for (int64_t i = 0; i < count; i++)
            ((float *)y.at)[to + i * b] = widened(((const uint16_t *)x.at)[from + i * a]);
    else if (y.is_narrow)
        for (int64_t i = 0; i < count; i++)
            ((uint16_t *)y.at)[to + i * b] = narrowed(((const float *)x.at)[from + i * a]);
    else
        for (int64_t i = 0; i < count; i++)
            ((float *)y.at)[to + i * b] = ((const float *)x.at)[from + i * a];
}

void copy(Box x, Box y, Extents extents) {
    int64_t lines = line_count(extents), count = extents.of[AXES - 1];
#pragma omp parallel for schedule(static) if (lines * count > SMALL)
    for (int64_t line = 0; line < lines; line++)
        copy_line(x, y, line_start(x, extents, line), line_start(y, extents, line), count);
}
