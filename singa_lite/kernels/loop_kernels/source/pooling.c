/* Two-dimensional pooling, channels innermost: each element of the result is made in one go from all that it is of.
 *
 * Forward these are the taps of a window; backward the windows that an element of x lies in, from the last one on, so
 * that their taps rise as in the formula. Both go over rows of the result, which threads share out. */
#include "pooling.h"

typedef struct {
    int64_t images, height, width, y_height, y_width, channels;
    int64_t rows, columns, down, across, top, left;
} Shape;

/* Taps or windows from `first` to `end`, which is not one of them. */
typedef struct {
    int64_t first, end;
} Span;

static Shape shape_of(Extents sizes, Extents window) {
    const int64_t *s = sizes.of, *w = window.of;
    return (Shape){s[0], s[1], s[2], s[3], s[4], s[5], w[0], w[1], w[2], w[3], w[4], w[5]};
}

/* Elements of x along an axis that a window meets. */
static Span met(int64_t window, int64_t step, int64_t taps, int64_t pad, int64_t extent) {
    int64_t start = window * step - pad;
    return (Span){start > 0 ? start : 0, least(start + taps, extent)};
}

/* Windows along an axis that meet an element of x. */
static Span meeting(int64_t element, int64_t step, int64_t taps, int64_t pad, int64_t windows) {
    int64_t before = element + pad - taps;
    return (Span){before < 0 ? 0 : before / step + 1, least((element + pad) / step + 1, windows)};
}

static int64_t count_of(Shape s, int64_t row, int64_t column, int64_t count_pad) {
    Span down = met(row, s.down, s.rows, s.top, s.height), across = met(column, s.across, s.columns, s.left, s.width);
    return count_pad ? s.rows * s.columns : (down.end - down.first) * (across.end - across.first);
}

static void put_index(void *index, int64_t bytes, int64_t at, const int32_t *winners, int64_t count) {
    for (int64_t i = 0; i < count && bytes == 4; i++)
        ((int32_t *)index)[at + i] = winners[i];
    for (int64_t i = 0; i < count && bytes == 1; i++)
        ((uint8_t *)index)[at + i] = (uint8_t)winners[i];
}

/* Channels of one element of y. */
static void largest_of_window(Rows x, Rows y, void *index, int64_t bytes, Shape s, int64_t image, int64_t row,
                              int64_t column, int64_t channel, int64_t count) {
    Span down = met(row, s.down, s.rows, s.top, s.height), across = met(column, s.across, s.columns, s.left, s.width);
    int64_t place = (image * s.y_height + row) * s.y_width + column;
    float buffer[CHUNK], results[CHUNK], *best = target_chunk(y, place, channel, results);
    int32_t winners[CHUNK];
    for (int64_t h = down.first; h < down.end; h++)
        for (int64_t w = across.first; w < across.end; w++) {
            const float *from = read_chunk(x, (image * s.height + h) * s.width + w, channel, count, buffer);
            int32_t tap = (int32_t)((h - row * s.down + s.top) * s.columns + w - column * s.across + s.left);
            int32_t is_first = h == down.first && w == across.first;
#pragma omp simd
            for (int64_t i = 0; i < count; i++) {
                int32_t wins = is_first | (from[i] > best[i]) | ((from[i] != from[i]) & (best[i] == best[i]));
                best[i] = wins ? from[i] : best[i];
                winners[i] = wins ? tap : winners[i];
            }
        }
    write_chunk(y, place, channel, count, results);
    if (index)
        put_index(index, bytes, place * s.channels + channel, winners, count);
}

void max_pool2d(Rows x, Rows y, void *index, int64_t bytes, Extents sizes, Extents window) {
    Shape s = shape_of(sizes, window);
#pragma omp parallel for schedule(static) if (s.images * s.height * s.width * s.channels > SMALL)
    for (int64_t line = 0; line < s.images * s.y_height; line++)
        for (int64_t column = 0; column < s.y_width; column++)
            for (int64_t channel = 0; channel < s.channels; channel += CHUNK)
                largest_of_window(x, y, index, bytes, s, line / s.y_height, line % s.y_height, column, channel,
                                  least(CHUNK, s.channels - channel));
}

/* sums += dy where the winner is this tap. */
static void add_won(const float *dy, const void *index, int64_t bytes, int64_t at, int32_t tap, int64_t count,
                    float *sums) {
    const uint8_t *small = (const uint8_t *)index + at;
    const int32_t *large = (const int32_t *)index + at;
    if (bytes == 1) {
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            sums[i] += small[i] == tap ? dy[i] : 0;
    } else {
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            sums[i] += large[i] == tap ? dy[i] : 0;
    }
}

/* Channels of one element of dx. index: NULL for averages. */
static void derive_element(Rows dy, const void *index, int64_t bytes, Rows dx, Shape s, int64_t image, int64_t h,
                           int64_t w, int64_t channel, int64_t count, int64_t count_pad) {
    Span down = meeting(h, s.down, s.rows, s.top, s.y_height);
    Span across = meeting(w, s.across, s.columns, s.left, s.y_width);
    int64_t own = (image * s.height + h) * s.width + w;
    float buffer[CHUNK], results[CHUNK], *sums = target_chunk(dx, own, channel, results);
    memset(sums, 0, count * sizeof(float));
    for (int64_t row = down.end - 1; row >= down.first; row--)
        for (int64_t column = across.end - 1; column >= across.first; column--) {
            int64_t place = (image * s.y_height + row) * s.y_width + column;
            const float *given = read_chunk(dy, place, channel, count, buffer);
            int32_t tap = (int32_t)((h - row * s.down + s.top) * s.columns + w - column * s.across + s.left);
            if (index) {
                add_won(given, index, bytes, place * s.channels + channel, tap, count, sums);
                continue;
            }
            float share = 1 / (float)count_of(s, row, column, count_pad);
#pragma omp simd
            for (int64_t i = 0; i < count; i++)
                sums[i] += given[i] * share;
        }
    write_chunk(dx, own, channel, count, results);
}

static void derive(Rows dy, const void *index, int64_t bytes, Rows dx, Shape s, int64_t count_pad) {
#pragma omp parallel for schedule(static) if (s.images * s.height * s.width * s.channels > SMALL)
    for (int64_t line = 0; line < s.images * s.height; line++)
        for (int64_t w = 0; w < s.width; w++)
            for (int64_t channel = 0; channel < s.channels; channel += CHUNK)
                derive_element(dy, index, bytes, dx, s, line / s.height, line % s.height, w, channel,
                               least(CHUNK, s.channels - channel), count_pad);
}

void max_pool2d_derivative(Rows dy, const void *index, int64_t bytes, Rows dx, Extents sizes, Extents window) {
    derive(dy, index, bytes, dx, shape_of(sizes, window), 0);
}

/* Channels of one element of y: a line of the window by itself, then the lines' sums, so that few roundings add up. */
static void mean_of_window(Rows x, Rows y, Shape s, int64_t image, int64_t row, int64_t column, int64_t channel,
                           int64_t count, int64_t count_pad) {
    Span down = met(row, s.down, s.rows, s.top, s.height), across = met(column, s.across, s.columns, s.left, s.width);
    int64_t place = (image * s.y_height + row) * s.y_width + column;
    float buffer[CHUNK], line[CHUNK], results[CHUNK], *sums = target_chunk(y, place, channel, results);
    float share = 1 / (float)count_of(s, row, column, count_pad);
    memset(sums, 0, count * sizeof(float));
    for (int64_t h = down.first; h < down.end; h++) {
        memset(line, 0, count * sizeof(float));
        for (int64_t w = across.first; w < across.end; w++) {
            const float *from = read_chunk(x, (image * s.height + h) * s.width + w, channel, count, buffer);
#pragma omp simd
            for (int64_t i = 0; i < count; i++)
                line[i] += from[i];
        }
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            sums[i] += line[i];
    }
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        sums[i] *= share;
    write_chunk(y, place, channel, count, results);
}

void avg_pool2d(Rows x, Rows y, Extents sizes, Extents window, int64_t count_pad) {
    Shape s = shape_of(sizes, window);
#pragma omp parallel for schedule(static) if (s.images * s.height * s.width * s.channels > SMALL)
    for (int64_t line = 0; line < s.images * s.y_height; line++)
        for (int64_t column = 0; column < s.y_width; column++)
            for (int64_t channel = 0; channel < s.channels; channel += CHUNK)
                mean_of_window(x, y, s, line / s.y_height, line % s.y_height, column, channel,
                               least(CHUNK, s.channels - channel), count_pad);
}

void avg_pool2d_derivative(Rows dy, Rows dx, Extents sizes, Extents window, int64_t count_pad) {
    derive(dy, NULL, 0, dx, shape_of(sizes, window), count_pad);
}
