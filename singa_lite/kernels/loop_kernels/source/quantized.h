/* Numbers of quantised blocks, in the formats of ggml. */
#ifndef QUANTIZED_H
#define QUANTIZED_H

#include "ids.h"

/* y (rows, columns) = the numbers of blocks, rows `pitch` bytes apart. format: its place in the interface's table. */
void dequantize(const void *blocks, int64_t pitch, int64_t format, Rows y, int64_t rows, int64_t columns);

/* y (count, columns) = the rows that ids name, integers of a type as in ids.h, `step` bytes apart. */
void quantized_embedding(const void *ids, int64_t type, int64_t step, const void *blocks, int64_t pitch, int64_t format,
                         Rows y, int64_t count, int64_t columns);

/* The most rows of x that quantized_rows takes. */
#define FEW 8

/* y (n, rows) = x (n, columns) times the weight transposed, plus bias, float32 (rows) or NULL; n: at most FEW. The
 * sums of a row of x do not depend on the others. */
void quantized_rows(Rows x, const void *blocks, int64_t pitch, int64_t format, const float *bias, Rows y, int64_t n,
                    int64_t rows, int64_t columns);

#endif
