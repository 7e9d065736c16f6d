/* Products by a matrix that is packed once and used many times.
 *
 * The matrix (depth, columns) lies in panels of PANEL columns, one row of a panel after the other; the last panel is
 * filled up with 0. So the innermost loop reads it as it lies, and a result of several rows stays in registers. */
#ifndef PANEL_PRODUCT_H
#define PANEL_PRODUCT_H

#include "numbers.h"

/* Floats of a vector register, vectors of a panel's row, and rows of a tile: accumulators fill the registers. */
#if defined(__AVX512F__)
#define LANES 16
#define TILE_ROWS 8
#elif defined(__AVX2__)
#define LANES 8
#define TILE_ROWS 6
#else
#define LANES 4
#define TILE_ROWS 8
#endif
#define PANEL (2 * LANES)

/* Columns of all panels. */
static inline int64_t panel_columns(int64_t columns) { return (columns + PANEL - 1) / PANEL * PANEL; }

/* Packs `columns` columns of the matrix from the column `first` on. */
void pack_panels(Rows matrix, float *panels, int64_t first, int64_t depth, int64_t columns);

/* Packs `depth` columns of the matrix, from the column `first` on, as the rows of panels: a part of the matrix,
 * transposed. */
void pack_panels_transposed(Rows matrix, float *panels, int64_t first, int64_t depth, int64_t columns);

/* c (rows, panel_columns(columns)) = a (rows, depth) @ panels, and c before where `adds`. Each element is added up in
 * the order of the depth, however many rows there are. */
void multiply_panels(const float *a, int64_t a_pitch, const float *panels, float *c, int64_t c_pitch, int64_t rows,
                     int64_t depth, int64_t columns, int64_t adds);

#endif
