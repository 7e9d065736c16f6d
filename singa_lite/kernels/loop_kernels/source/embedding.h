/* Gradients of the rows of a table by their ids. */
#ifndef EMBEDDING_H
#define EMBEDDING_H

#include "numbers.h"

/* dweight (rows, features) = sum of the rows of dy (count, features) whose id is first + the row's number; with `adds`
 * it is added to the rows that occur, and no other is touched. ids: `count` integers of a
 * type as in ids.h; padding: an id that is passed over. scratch: rows + 1 + count int32. */
void embedding_gradient(const void *ids, Rows dy, Rows dweight, void *scratch, int64_t type, int64_t count,
                        int64_t rows, int64_t features, int64_t first, int64_t padding, int64_t adds);

#endif
