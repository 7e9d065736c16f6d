/* Losses that are means over the elements of a sample: one pass, a row in pieces, whose sums are added up in order.
 *
 *     sigmoid cross entropy: log(1 + e^-|x|) - x * t + max(x, 0)
 *     Huber: part * (|x - t| - part / 2),   part = min(|x - t|, delta) */
#include "sample_loss.h"
#include "functions.h"
#include "sums.h"

typedef enum { SIGMOID, HUBER } Loss;

INLINE float value_of(Loss loss, float x, float t, float delta) {
    if (loss == SIGMOID)
        return logarithm_above_1(exponential_below_0(-fabsf(x))) - x * t + (x < 0 ? 0 : x);
    float distance = fabsf(x - t), part = distance > delta ? delta : distance;
    return 0.5f * part * (2 * distance - part);
}

/* The sum of the losses of a row's elements from `start` to `end`. */
INLINE double sum_part(Loss loss, Rows x, Rows target, int64_t row, int64_t start, int64_t end, float delta) {
    float buffers[2][CHUNK];
    double total = 0;
    for (int64_t column = start; column < end; column += CHUNK) {
        int64_t count = least(CHUNK, end - column);
        const float *a = read_chunk(x, row, column, count, buffers[0]);
        const float *b = read_chunk(target, row, column, count, buffers[1]);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < count; i++)
            sum += value_of(loss, a[i], b[i], delta);
        total += sum;
    }
    return total;
}

INLINE void mean_losses(Loss loss, Rows x, Rows target, float *losses, double *scratch, int64_t rows, int64_t columns,
                        int64_t pieces, float delta) {
#pragma omp parallel for schedule(static) if (rows * columns > SMALL / 4)
    for (int64_t item = 0; item < rows * pieces; item++) {
        int64_t piece = item % pieces, start = piece_start(piece, pieces, columns);
        int64_t end = piece_start(piece + 1, pieces, columns);
        scratch[item] = sum_part(loss, x, target, item / pieces, start, end, delta);
    }
    for (int64_t row = 0; row < rows; row++) {
        double total = 0;
        for (int64_t piece = 0; piece < pieces; piece++)
            total += scratch[row * pieces + piece];
        losses[row] = (float)(total / (double)columns);
    }
}

void sigmoid_cross_entropy(Rows x, Rows target, float *losses, double *scratch, int64_t rows, int64_t columns,
                           int64_t pieces) {
    mean_losses(SIGMOID, x, target, losses, scratch, rows, columns, pieces, 0);
}

void huber(Rows x, Rows target, float *losses, double *scratch, int64_t rows, int64_t columns, int64_t pieces,
           float delta) {
    mean_losses(HUBER, x, target, losses, scratch, rows, columns, pieces, delta);
}
