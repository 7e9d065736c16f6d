/* Products by a packed matrix: a tile of rows by a panel of columns at a time, whose sums stay in registers. */
#include "panel_product.h"

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));

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

/* One tile. rows is a constant wherever this is inlined, so that the sums are in registers. */
static inline __attribute__((always_inline)) void tile(const int rows, const float *a, int64_t a_pitch,
                                                       const float *panel, float *c, int64_t c_pitch, int64_t depth,
                                                       int64_t adds) {
    Vector sums[TILE_ROWS][2];
    for (int row = 0; row < rows; row++)
        for (int half = 0; half < 2; half++)
            sums[row][half] = adds ? *(const Vector *)(c + row * c_pitch + half * LANES) : (Vector){0};
    for (int64_t k = 0; k < depth; k++, panel += PANEL) {
        Vector left = *(const Vector *)panel, right = *(const Vector *)(panel + LANES);
        for (int row = 0; row < rows; row++) {
            sums[row][0] += a[row * a_pitch + k] * left;
            sums[row][1] += a[row * a_pitch + k] * right;
        }
    }
    for (int row = 0; row < rows; row++)
        for (int half = 0; half < 2; half++)
            *(Vector *)(c + row * c_pitch + half * LANES) = sums[row][half];
}

#define TILE_OF(ROWS)                                            \
    case ROWS:                                                   \
        tile(ROWS, a, a_pitch, panel, c, c_pitch, depth, adds);  \
        break;

static void tile_of(int64_t rows, const float *a, int64_t a_pitch, const float *panel, float *c, int64_t c_pitch,
                    int64_t depth, int64_t adds) {
    switch (rows) {
        TILE_OF(1)
        TILE_OF(2)
        TILE_OF(3)
        TILE_OF(4)
        TILE_OF(5)
        TILE_OF(6)
#if TILE_ROWS > 6
        TILE_OF(7)
        TILE_OF(8)
#endif
    }
}

void multiply_panels(const float *a, int64_t a_pitch, const float *panels, float *c, int64_t c_pitch, int64_t rows,
                     int64_t depth, int64_t columns, int64_t adds) {
    for (int64_t column = 0; column < columns; column += PANEL)
        for (int64_t row = 0; row < rows; row += TILE_ROWS)
            tile_of(least(TILE_ROWS, rows - row), a + row * a_pitch, a_pitch, panels + column * depth,
                    c + row * c_pitch + column, c_pitch, depth, adds);
}
