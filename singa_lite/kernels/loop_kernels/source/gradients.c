/* Gradients and other tensors of parameters: added, scaled and clipped in place, one pass each; clipping by the norm
 * takes two.
 *
 * Squares are added up in float64: chunk by chunk in a row, then row by row. So the rows of a large gradient that are
 * squared some at a time give the same bits, by any number of threads. Each product is rounded, as NumPy does it. */
#pragma GCC optimize("fp-contract=off")
#include "gradients.h"

/* Elements of a row whose squares are added up by one thread. */
#define WIDE 4096

/* A number that is applied to each element, and how. */
typedef enum { SCALE, CLIP, ADD_SCALED } Change;

static void change(Change what, float number, const float *x, float *y, int64_t count) {
    if (what == SCALE)
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            y[i] *= number;
    else if (what == CLIP)
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            float low = y[i] < -number ? -number : y[i];
            y[i] = low > number ? number : low;
        }
    else
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            y[i] += number * x[i];
}

/* What each row of y becomes, chunk by chunk. x.at: NULL where y alone is read. */
static void change_all(Change what, float number, Rows x, Rows y, int64_t rows, int64_t columns) {
    int64_t chunks = quotient_up(columns, CHUNK);
#pragma omp parallel for schedule(static) if (rows * columns > SMALL)
    for (int64_t part = 0; part < rows * chunks; part++) {
        float from[CHUNK], to[CHUNK];
        int64_t row = part / chunks, column = part % chunks * CHUNK, count = least(CHUNK, columns - column);
        const float *other = x.at ? read_chunk(x, row, column, count, from) : NULL;
        change(what, number, other, (float *)read_chunk(y, row, column, count, to), count);
        write_chunk(y, row, column, count, to);
    }
}

void add_scaled(Rows x, Rows y, int64_t rows, int64_t columns, float alpha) {
    change_all(ADD_SCALED, alpha, x, y, rows, columns);
}

void clip_elements(Rows y, int64_t rows, int64_t columns, float threshold) {
    change_all(CLIP, threshold, (Rows){NULL, 0, 0}, y, rows, columns);
}

void scale_by(const double *factor, Rows y, int64_t rows, int64_t columns) {
    if (*factor != 1)
        change_all(SCALE, (float)*factor, (Rows){NULL, 0, 0}, y, rows, columns);
}

static double sum_of_squares(Rows x, int64_t row, int64_t start, int64_t end) {
    float buffer[CHUNK];
    double sums[32] = {0}, sum = 0;
    for (int64_t column = start; column < end; column += CHUNK) {
        int64_t count = least(CHUNK, end - column), whole = count / 32 * 32;
        const float *from = read_chunk(x, row, column, count, buffer);
        for (int64_t i = 0; i < whole; i += 32)
#pragma omp simd
            for (int64_t lane = 0; lane < 32; lane++)
                sums[lane] += (double)from[i + lane] * from[i + lane];
        for (int64_t i = whole; i < count; i++)
            sum += (double)from[i] * from[i];
    }
    for (int64_t lane = 0; lane < 32; lane++)
        sum += sums[lane];
    return sum;
}

void add_squares(Rows x, double *total, double *scratch, int64_t rows, int64_t columns) {
    int64_t chunks = quotient_up(columns, WIDE), parts = rows * chunks;
    double of_row = 0;
    for (int64_t first = 0; first < parts; first += PARTIAL_SUMS) {
        int64_t count = least(PARTIAL_SUMS, parts - first);
#pragma omp parallel for schedule(static) if (count * least(WIDE, columns) > SMALL)
        for (int64_t i = 0; i < count; i++) {
            int64_t start = (first + i) % chunks * WIDE;
            scratch[i] = sum_of_squares(x, (first + i) / chunks, start, least(start + WIDE, columns));
        }
        for (int64_t i = 0; i < count; i++) {
            of_row += scratch[i];
            if ((first + i + 1) % chunks)
                continue;
            *total += of_row;
            of_row = 0;
        }
    }
}

void clip_norm(Rows y, double *scratch, int64_t rows, int64_t columns, double threshold) {
    double total = 0;
    add_squares(y, &total, scratch, rows, columns);
    double norm = sqrt(total);
    if (norm > threshold)
        change_all(SCALE, (float)(threshold / norm), (Rows){NULL, 0, 0}, y, rows, columns);
}
