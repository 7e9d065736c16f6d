/* Numbers of quantised blocks, in the formats of ggml. */
#ifndef QUANTIZED_H
#define QUANTIZED_H

#include "ids.h"

/* y (rows, columns) = the numbers of blocks, rows `pitch` bytes apart. format: its place in the interface's table. */
void dequantize(const void *blocks, int64_t pitch, int64_t format, Rows y, int64_t rows, int64_t columns);

/* y (count, columns) = the rows that ids name, integers of a type as in ids.h, `step` bytes apart. */
void quantized_embedding(const void *ids, int64_t type, int64_t step, const void *blocks, int64_t pitch, int64_t format,
                         Rows y, int64_t count, int64_t columns);

#endif
