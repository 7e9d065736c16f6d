/* Softmax of the rows of a matrix: y = e^z / sum of e^z, z = x - the row's largest;   dx = y * (dy - sum of dy * y).
 *
 * A row is read from memory once: its largest element is found, then powers of e and their sum, then all are divided
 * by it while they are in the cache. The logarithm of a sum needs one pass, chunk by chunk: the sum so far is scaled
 * where a chunk has a larger element. */
#include "softmax.h"
#include "powers.h"

void softmax(Rows x, Rows y, int64_t rows, int64_t columns) {
    int64_t block = columns > FEW ? 1 : BLOCK;
#pragma omp parallel for schedule(static) if (rows * columns > SMALL / 4)
    for (int64_t start = 0; start < rows; start += block) {
        float top[BLOCK], sum[BLOCK];
        if (columns <= FEW && start + BLOCK <= rows)
            softmax_block(x, y, start, columns, top, sum);
        else
            for (int64_t row = start; row < least(rows, start + block); row++)
                softmax_row(x, y, row, columns, largest_of_row(x, row, columns));
    }
}

static void derive_row(Rows dy, Rows y, Rows dx, int64_t row, int64_t columns) {
    float buffers[3][CHUNK];
    double total = 0;
    for (int64_t column = 0; column < columns; column += CHUNK) {
        int64_t count = least(CHUNK, columns - column);
        const float *slope = read_chunk(dy, row, column, count, buffers[0]);
        const float *value = read_chunk(y, row, column, count, buffers[1]);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < count; i++)
            sum += slope[i] * value[i];
        total += sum;
    }
    float mean = (float)total;
    for (int64_t column = 0; column < columns; column += CHUNK) {
        int64_t count = least(CHUNK, columns - column);
        const float *slope = read_chunk(dy, row, column, count, buffers[0]);
        const float *value = read_chunk(y, row, column, count, buffers[1]);
        float *to = target_chunk(dx, row, column, buffers[2]);
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            to[i] = value[i] * (slope[i] - mean);
        write_chunk(dx, row, column, count, to);
    }
}

void softmax_derivative(Rows dy, Rows y, Rows dx, int64_t rows, int64_t columns) {
#pragma omp parallel for schedule(static) if (rows * columns > SMALL)
    for (int64_t row = 0; row < rows; row++)
        derive_row(dy, y, dx, row, columns);
}

void log_sum_exp(Rows x, float *y, int64_t rows, int64_t columns) {
#pragma omp parallel for schedule(static) if (rows * columns > SMALL / 4)
    for (int64_t row = 0; row < rows; row++) {
        float buffer[CHUNK], top = -FLT_MAX;
        double sum = 0;
        for (int64_t column = 0; column < columns; column += CHUNK) {
            int64_t count = least(CHUNK, columns - column);
            const float *from = read_chunk(x, row, column, count, buffer);
            float higher = largest(from, count, top);
            if (higher > top)
                sum *= exponential(top - higher);
            top = higher;
            sum += sum_powers(from, count, top, NULL);
        }
        y[row] = sum == 0 ? NAN : (float)(top + log(sum));
    }
}
