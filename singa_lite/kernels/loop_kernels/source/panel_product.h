/* Products by a matrix that is packed once and used many times.
 *
 * The matrix (depth, columns) lies in panels of PANEL columns, one row of a panel after the other, filled up with 0. So
 * the innermost loop reads it as it lies. */
#ifndef PANEL_PRODUCT_H
#define PANEL_PRODUCT_H

#include "numbers.h"
#include "product.h"

/* Columns of a panel. */
#define PANEL 64

/* Columns of a result: whole vectors. */
static inline int64_t padded_columns(int64_t columns) { return quotient_up(columns, LANES) * LANES; }

/* Packs `columns` columns of the matrix from the column `first` on. */
void pack_panels(Rows matrix, float *panels, int64_t first, int64_t depth, int64_t columns);

/* Packs `depth` columns of the matrix, from the column `first` on, as the rows of panels: a part of the matrix,
 * transposed. */
void pack_panels_transposed(Rows matrix, float *panels, int64_t first, int64_t depth, int64_t columns);

/* c (rows, padded_columns(columns)) = a (rows, depth) @ panels, and c before where `adds`. */
void multiply_panels(const float *a, int64_t a_pitch, const float *panels, float *c, int64_t c_pitch, int64_t rows,
                     int64_t depth, int64_t columns, int64_t adds);

#endif
