/* Numbers of quantised blocks, in the formats of ggml. */
#ifndef QUANTIZED_H
#define QUANTIZED_H

#include "ids.h"

/* Rows of x of a product at most: more of them are multiplied faster by a library, of numbers in a cache. */
#define FEW_ROWS 8

/* y (rows, columns) = the numbers of blocks, rows `pitch` bytes apart. format: its place in the interface's table. */
void dequantize(const void *blocks, int64_t pitch, int64_t format, Rows y, int64_t rows, int64_t columns);

/* y (count, columns) = the rows that ids name, integers of a type as in ids.h, `step` bytes apart. */
void quantized_embedding(const void *ids, int64_t type, int64_t step, const void *blocks, int64_t pitch, int64_t format,
                         Rows y, int64_t count, int64_t columns);

/* y (count, rows) = x (count, columns) @ weight^T + bias, of few rows of x.
 * bias: NULL where there is none. */
void quantized_linear(Rows x, const void *blocks, int64_t pitch, int64_t format, const float *bias, Rows y,
                      int64_t count, int64_t rows, int64_t columns);

#endif
