/* Cross entropy of rows of which only some classes are there, and smoothed labels: one pass each, formulas in
 * token_loss.h. */
#include "token_loss.h"
#include "functions.h"
#include "ids.h"
#include "sums.h"

void softmax_classes_derivative(const float *dlosses, Rows x, const float *lse, Box ids, Extents of_ids,
                                Rows dx, int64_t rows, int64_t columns, int64_t first, int64_t classes, double share) {
    float offset = (float)(share / (double)classes), whole = (float)(1 - share);
#pragma omp parallel for schedule(static) if (rows * columns > SMALL / 4)
    for (int64_t row = 0; row < rows; row++) {
        float buffers[2][CHUNK], factor = dlosses[row], log_sum = lse[row];
        int64_t own = id_at(ids, of_ids, row) - first;
        for (int64_t column = 0; column < columns; column += CHUNK) {
            int64_t count = least(CHUNK, columns - column);
            const float *from = read_chunk(x, row, column, count, buffers[0]);
            float *to = target_chunk(dx, row, column, buffers[1]);
#pragma omp simd
            for (int64_t i = 0; i < count; i++)
                to[i] = (exponential(from[i] - log_sum) - offset) * factor;
            if (own >= column && own < column + count)
                to[own - column] -= whole * factor;
            if (factor == 0)
                memset(to, 0, count * sizeof(float));
            write_chunk(dx, row, column, count, to);
        }
    }
}

void smooth_labels(Rows x, Box ids, Extents of_ids, float *losses, int64_t rows, int64_t columns,
                   double share) {
#pragma omp parallel for schedule(static) if (rows * columns > SMALL)
    for (int64_t row = 0; row < rows; row++) {
        double mean = sum_of_row(x, row, columns) / (double)columns;
        losses[row] += (float)(share * (number_at(x, row, id_at(ids, of_ids, row)) - mean));
    }
}

void smooth_labels_derivative(const float *dlosses, Box ids, Extents of_ids, Rows dx, int64_t rows,
                              int64_t columns, double share) {
#pragma omp parallel for schedule(static) if (rows * columns > SMALL)
    for (int64_t row = 0; row < rows; row++) {
        float buffer[CHUNK], slope = dlosses[row] * (float)share, all = slope / (float)columns;
        int64_t own = id_at(ids, of_ids, row);
        for (int64_t column = 0; column < columns; column += CHUNK) {
            int64_t count = least(CHUNK, columns - column);
            const float *from = read_chunk(dx, row, column, count, buffer);
            float *to = target_chunk(dx, row, column, buffer);
#pragma omp simd
            for (int64_t i = 0; i < count; i++)
                to[i] = from[i] - all;
            if (own >= column && own < column + count)
                to[own - column] += slope;
            write_chunk(dx, row, column, count, to);
        }
    }
}
