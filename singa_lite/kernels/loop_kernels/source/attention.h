/* Attention by tiles of scores (Dao and others, arXiv 2205.14135), over tensors of any strides. */
#ifndef ATTENTION_H
#define ATTENTION_H

#include "numbers.h"

/* y and lse of `attention`. q, y: axes (n, rows, heads, size), the last of their boxes; k, v: (n, keys, key heads, size);
 * lse: (n, heads, rows); mask: (n, keys), of numbers of so many bytes, floats where mask_is_float, `at` NULL for none.
 * first: (n, rows), the first key that each row sees, ints of `type` bytes, `at` NULL for none.
 * key: of `dropout`, NULL for none; p: the share that is dropped. sizes: n, rows, keys, heads, key heads, size.
 * scratch: `slots` times slot_bytes. */
void attention(Box q, Box k, Box v, Box mask, Box first, Box y, Box lse, const uint64_t *key, void *scratch, Extents sizes,
               int64_t mask_bytes, int64_t mask_is_float, int64_t is_causal, int64_t slots, int64_t slot_bytes,
               float scale, float p);

/* y of `attention` for rows after `position` others: row i sees keys 0 to position + i. */
void cached_attention(Box q, Box keys, Box values, Box mask, Box first, Box y, const int64_t *position, void *scratch,
                      Extents sizes, int64_t mask_bytes, int64_t mask_is_float, int64_t slots, int64_t slot_bytes,
                      float scale);

/* The same where there is one row: of each key head, all query heads that go with it are given as its rows. */
void cached_row(Box q, Box keys, Box values, Box mask, Box first, Box y, const int64_t *position, void *scratch, Extents sizes,
                int64_t mask_bytes, int64_t mask_is_float, int64_t slots, int64_t slot_bytes, float scale);

/* Derivatives of `attention`. */
void attention_derivative(Box dy, Box q, Box k, Box v, Box mask, Box first, Box y, Box lse, Box dq, Box dk, Box dv,
                          const uint64_t *key, void *scratch, Extents sizes, int64_t mask_bytes, int64_t mask_is_float,
                          int64_t is_causal, int64_t slots, int64_t slot_bytes, float scale, float p);

#endif
