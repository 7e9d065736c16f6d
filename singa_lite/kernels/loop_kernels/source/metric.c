/* The share of ids whose score is among the k largest of its row.
 *
 * One pass: larger scores are counted, and equal ones of lower ids. */
#include "metric.h"
#include "ids.h"
#include "sums.h"

/* Whether an element is among the k largest of its row; NaN is not. */
static float is_hit(Rows x, int64_t row, int64_t columns, int64_t id, int64_t k) {
    float buffer[CHUNK], own = number_at(x, row, id);
    int64_t before = 0;
    for (int64_t column = 0; column < columns; column += CHUNK) {
        int64_t count = least(CHUNK, columns - column), earlier = id - column;
        const float *from = read_chunk(x, row, column, count, buffer);
        int32_t higher = 0;
#pragma omp simd reduction(+ : higher)
        for (int64_t i = 0; i < count; i++)
            higher += (from[i] > own) | ((from[i] == own) & (i < earlier));
        before += higher;
    }
    return own == own && before < k;
}

void in_top_k(Rows x, Box ids, Extents of_ids, float *numbers, float *values, int64_t rows, int64_t columns,
              int64_t positions, int64_t k) {
    float *result = numbers ? numbers : values;
#pragma omp parallel for schedule(static) if (rows * columns > SMALL)
    for (int64_t row = 0; row < rows; row++)
        result[row] = is_hit(x, row, columns, id_at(ids, of_ids, row), k);
    if (numbers)
        mean_of_rows(numbers, values, rows / positions, positions);
}
