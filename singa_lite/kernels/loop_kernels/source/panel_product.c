/* Products by a packed matrix, c = a @ matrix: it is packed in one pass, then multiplied one panel at a time. */
#include "panel_product.h"

/* Rows of a panel that are transposed at a time: they stay in the first cache. */
#define BLOCK 64

void pack_panels(Rows matrix, float *panels, int64_t first, int64_t depth, int64_t columns) {
#pragma omp parallel for schedule(static) if (depth * columns > SMALL)
    for (int64_t column = 0; column < columns; column += PANEL) {
        int64_t count = least(PANEL, columns - column);
        float *to = panels + column * depth, buffer[PANEL];
        for (int64_t row = 0; row < depth; row++, to += PANEL) {
            memset(to, 0, PANEL * sizeof(float));
            memcpy(to, read_chunk(matrix, row, first + column, count, buffer), count * sizeof(float));
        }
    }
}

void pack_panels_transposed(Rows matrix, float *panels, int64_t first, int64_t depth, int64_t columns) {
#pragma omp parallel for schedule(static) if (depth * columns > SMALL)
    for (int64_t column = 0; column < columns; column += PANEL)
        for (int64_t row = 0; row < depth; row += BLOCK) {
            int64_t count = least(BLOCK, depth - row);
            float *to = panels + column * depth + row * PANEL, buffer[BLOCK];
            for (int64_t each = 0; each < PANEL; each++) {
                int is_there = column + each < columns;
                const float *from = is_there ? read_chunk(matrix, column + each, first + row, count, buffer) : NULL;
                for (int64_t i = 0; i < count; i++)
                    to[i * PANEL + each] = is_there ? from[i] : 0;
            }
        }
}

void multiply_panels(const float *a, int64_t a_pitch, const float *panels, float *c, int64_t c_pitch, int64_t rows,
                     int64_t depth, int64_t columns, int64_t adds) {
    for (int64_t column = 0; column < columns; column += PANEL) {
        Lines panel = {(float *)panels + column * depth, PANEL}, result = {c + column, c_pitch};
        multiply((Factor){a, a_pitch, 1}, panel, result, rows, padded_columns(least(PANEL, columns - column)), depth,
                 adds != 0);
    }
}
