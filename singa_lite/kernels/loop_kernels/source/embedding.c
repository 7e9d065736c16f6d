/* Gradients of rows by ids: places are sorted by their row, then each row is summed by one thread.
 *
 * A sum goes in the order of the ids, GROUP of them at a time, as NumPy's kernels go: bits are the same. */
#include "embedding.h"

#include <stdlib.h>

#include "ids.h"

/* Rows that are added up before their sum is added to that of the others. */
#define GROUP 64
/* Rows of the table that a thread takes at a time: rows differ in how often they occur. */
#define TAKEN 64

/* The row of the table that id `i` names; -1 for an id that is passed over. */
static int64_t row_of(const void *ids, int64_t type, int64_t i, int64_t first, int64_t rows, int64_t padding) {
    int64_t id = read_id((const char *)ids + i * llabs(type), type), row = id - first;
    return row >= 0 && row < rows && id != padding ? row : -1;
}

/* Columns of the rows at these places, added up in `sum`. */
static void sum_group(Rows dy, const int32_t *places, int64_t count, int64_t column, int64_t width, float *sum) {
    float buffer[CHUNK];
    const float *row = read_chunk(dy, places[0], column, width, buffer);
    memcpy(sum, row, width * sizeof(float));
    for (int64_t each = 1; each < count; each++) {
        row = read_chunk(dy, places[each], column, width, buffer);
#pragma omp simd
        for (int64_t i = 0; i < width; i++)
            sum[i] += row[i];
    }
}

static void sum_rows(Rows dy, Rows dweight, int64_t row, const int32_t *places, int64_t count, int64_t features,
                     int64_t adds) {
    float total[CHUNK], group[CHUNK], old[CHUNK];
    for (int64_t column = 0; column < features; column += CHUNK) {
        int64_t width = least(CHUNK, features - column);
        memset(total, 0, sizeof total);
        for (int64_t start = 0; start < count; start += GROUP) {
            sum_group(dy, places + start, least(GROUP, count - start), column, width, start ? group : total);
            for (int64_t i = 0; start && i < width; i++)
                total[i] += group[i];
        }
        const float *before = read_chunk(dweight, row, column, width, old);
        for (int64_t i = 0; adds && i < width; i++)
            total[i] += before[i];
        float *target = target_chunk(dweight, row, column, old);
        memcpy(target, total, width * sizeof(float));
        write_chunk(dweight, row, column, width, target);
    }
}

void embedding_gradient(const void *ids, Rows dy, Rows dweight, void *scratch, int64_t type, int64_t count,
                        int64_t rows, int64_t features, int64_t first, int64_t padding, int64_t adds) {
    int32_t *ends = scratch, *places = ends + rows + 1;
    memset(ends, 0, (rows + 1) * sizeof(int32_t));
    for (int64_t i = 0; i < count; i++) {
        int64_t row = row_of(ids, type, i, first, rows, padding);
        if (row >= 0)
            ends[row + 1]++;
    }
    for (int64_t row = 0; row < rows; row++)
        ends[row + 1] += ends[row];
    for (int64_t i = 0; i < count; i++) {
        int64_t row = row_of(ids, type, i, first, rows, padding);
        if (row >= 0)
            places[ends[row]++] = (int32_t)i; /* where a row ends at last is where the next one began */
    }
#pragma omp parallel for schedule(dynamic, TAKEN) if ((adds ? count : rows + count) * features > SMALL)
    for (int64_t row = 0; row < rows; row++) {
        int64_t start = row ? ends[row - 1] : 0, times = ends[row] - start;
        if (times || !adds)
            sum_rows(dy, dweight, row, places + start, times, features, adds);
    }
}
