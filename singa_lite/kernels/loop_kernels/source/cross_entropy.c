/* Cross entropy of softmax, a row at a time: forward as in softmax.c, backward one pass.
 *
 *     loss = log(sum of e^z) - z of its class, z = x - the row's largest;   dx = dloss * (p - t) */
#include "cross_entropy.h"
#include "ids.h"
#include "powers.h"

/* The mean of z = x - top by the weights. */
static double weighted(Rows x, Rows weights, int64_t row, int64_t columns, float top) {
    float buffers[2][CHUNK];
    float scale = (float)(1 / sum_of_row(weights, row, columns));
    double total = 0;
    for (int64_t column = 0; column < columns; column += CHUNK) {
        int64_t count = least(CHUNK, columns - column);
        const float *score = read_chunk(x, row, column, count, buffers[0]);
        const float *weight = read_chunk(weights, row, column, count, buffers[1]);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < count; i++)
            sum += weight[i] * scale * (score[i] - top);
        total += sum;
    }
    return total;
}

static float loss_of_row(Rows x, Rows p, Rows weights, int64_t id, int64_t row, int64_t columns) {
    float top = largest_of_row(x, row, columns);
    double own = weights.at ? weighted(x, weights, row, columns, top) : (double)number_at(x, row, id) - top;
    double sum = softmax_row(x, p, row, columns, top);
    return (float)((sum == 0 ? NAN : log(sum)) - own);
}

static void losses_of_block(Rows x, Rows p, const int64_t *ids, int64_t start, int64_t columns, float *losses) {
    float top[BLOCK], sum[BLOCK];
    for (int64_t row = 0; row < BLOCK; row++)
        losses[row] = number_at(x, start + row, ids[row]);
    softmax_block(x, p, start, columns, top, sum);
#pragma omp simd
    for (int64_t row = 0; row < BLOCK; row++)
        losses[row] = logarithm(sum[row] == 0 ? NAN : sum[row]) - (losses[row] - top[row]);
}

void softmax_cross_entropy(Rows x, Rows p, Rows weights, Box ids, Extents of_ids, float *numbers,
                           float *losses, int64_t rows, int64_t columns, int64_t positions) {
    float *result = numbers ? numbers : losses;
    int64_t block = columns > FEW || weights.at ? 1 : BLOCK;
#pragma omp parallel for schedule(static) if (rows * columns > SMALL / 4)
    for (int64_t start = 0; start < rows; start += block) {
        int64_t count = least(block, rows - start), own[BLOCK];
        for (int64_t row = 0; row < count; row++)
            own[row] = weights.at ? 0 : id_at(ids, of_ids, start + row);
        if (count == BLOCK)
            losses_of_block(x, p, own, start, columns, result + start);
        else
            for (int64_t row = 0; row < count; row++)
                result[start + row] = loss_of_row(x, p, weights, own[row], start + row, columns);
    }
    if (numbers)
        mean_of_rows(numbers, losses, rows / positions, positions);
}

/* dx = factor * (p - a row of weights / their sum); p may lie where dx does. */
static void derive_by_weights(Rows p, Rows weights, Rows dx, float factor, int64_t row, int64_t columns) {
    float buffers[3][CHUNK], scale = (float)(1 / sum_of_row(weights, row, columns));
    for (int64_t column = 0; column < columns; column += CHUNK) {
        int64_t count = least(CHUNK, columns - column);
        const float *share = read_chunk(p, row, column, count, buffers[0]);
        const float *weight = read_chunk(weights, row, column, count, buffers[1]);
        float *to = target_chunk(dx, row, column, buffers[2]);
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            to[i] = factor == 0 ? 0 : (share[i] - weight[i] * scale) * factor;
        write_chunk(dx, row, column, count, to);
    }
}

/* y = factor * x over the first row, 0 for a factor of 0. */
static void scale_row(Rows x, Rows y, float factor, int64_t columns) {
    float buffers[2][CHUNK];
    for (int64_t column = 0; column < columns; column += CHUNK) {
        int64_t count = least(CHUNK, columns - column);
        const float *from = read_chunk(x, 0, column, count, buffers[0]);
        float *to = target_chunk(y, 0, column, buffers[1]);
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            to[i] = factor == 0 ? 0 : factor * from[i];
        write_chunk(y, 0, column, count, to);
    }
}

void softmax_cross_entropy_derivative(const float *dlosses, Rows p, Rows weights, Box ids, Extents of_ids,
                                      Rows dx, int64_t rows, int64_t columns, int64_t positions) {
    /* Short rows of a sample without gaps are scaled as one. */
    int64_t even = p.pitch == columns && dx.pitch == columns && !weights.at;
    int64_t block = even ? least(BLOCK, 1 + CHUNK / columns) : 1, blocks = quotient_up(positions, block);
#pragma omp parallel for schedule(static) if (rows * columns > SMALL)
    for (int64_t item = 0; item < rows / positions * blocks; item++) {
        int64_t sample = item / blocks, first = item % blocks * block, row = sample * positions + first;
        int64_t count = least(block, positions - first);
        float factor = dlosses[sample] / (float)positions, own[BLOCK];
        if (weights.at) {
            derive_by_weights(p, weights, dx, factor, row, columns);
            continue;
        }
        for (int64_t i = 0; i < count; i++)
            own[i] = number_at(p, row + i, id_at(ids, of_ids, row + i));
        scale_row(rows_from(p, row), rows_from(dx, row), factor, count * columns);
        for (int64_t i = 0; i < count && factor != 0; i++)
            set_number(dx, row + i, id_at(ids, of_ids, row + i), (own[i] - 1) * factor);
    }
}
