/* Values in bfloat16 behind an update, with the very bits of NumPy's kernels. All lie alike, without gaps. */
#ifndef STORED_VALUE_H
#define STORED_VALUE_H

#include "state_format.h"

/* count: updates so far, seed, stream: the key of all chances is a word of Philox. start: the first element's place. */
void round_by_chance(const float *x, const int64_t *count, void *value, int64_t size, int64_t start);

/* error: what rounding to nearest leaves over, in 1/256 of the last place. */
void split_error(const float *x, void *value, int8_t *error, int64_t size);

void add_error(const void *value, const int8_t *error, float *y, int64_t size);

void add_stored(const void *value, const int8_t *error, float *y, int64_t size, float alpha);

#endif
