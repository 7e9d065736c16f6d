/* Rows of few columns, several of them side by side: loops along a row are long, wherever the rows lie. */
#ifndef WIDE_ROWS_H
#define WIDE_ROWS_H

#include "numbers.h"

/* Columns that are read, computed and written at a time, of rows that are read in the order in which they lie. */
#define SPAN 2048
/* Elements from those that a loop reads to those that are asked for, where an operand has more than FAR. */
#define AHEAD 1024
#define FAR (1 << 20)

/* Rows of `parts` times `width` elements. parts: 1 where a row has no gaps; ahead: rows from one that is read to the one
 * that is asked for, 0 for none. */
typedef struct {
    Rows rows;
    int64_t width, parts, ahead;
} Wide;

/* `joined` rows as one. Results do not depend on whether there are gaps between them. */
static inline Wide wide_rows(Rows x, int64_t rows, int64_t width, int64_t joined) {
    int64_t columns = width * joined, ahead = rows * width > FAR ? 1 + AHEAD / columns : 0;
    if (x.pitch == width || joined == 1)
        return (Wide){{x.at, x.pitch * joined, x.is_narrow}, columns, 1, ahead};
    return (Wide){x, width, joined, ahead};
}

/* Asks for what is read soon. Processors do not look far enough ahead by themselves where a loop does much with each
 * element, or where a page ends. */
static inline void ask_ahead(Wide x, int64_t row, int64_t column, int64_t count) {
    int64_t bytes = x.rows.is_narrow ? 2 : 4, start = (row + x.ahead) * x.parts * x.rows.pitch + column;
    const char *from = (const char *)x.rows.at + start * bytes;
    for (int64_t byte = 0; byte < count * bytes; byte += 64)
        __builtin_prefetch(from + byte);
}

/* Where `count` elements of a wide row are in float32: in place, or in the buffer. A row of parts is read as a whole. */
static inline const float *read_wide(Wide x, int64_t row, int64_t column, int64_t count, float *restrict buffer) {
    if (x.ahead)
        ask_ahead(x, row, column, count);
    if (x.parts == 1)
        return read_chunk(x.rows, row, column, count, buffer);
    for (int64_t part = 0; part < x.parts; part++) {
        float *to = buffer + part * x.width;
        const float *from = read_chunk(x.rows, row * x.parts + part, 0, x.width, to);
        if (from != to)
            memcpy(to, from, x.width * sizeof(float));
    }
    return buffer;
}

/* Where results are put: in place, or into the buffer, from which `write_wide` takes them. */
static inline float *target_wide(Wide y, int64_t row, int64_t column, float *buffer) {
    return y.parts == 1 ? target_chunk(y.rows, row, column, buffer) : buffer;
}

static inline void write_wide(Wide y, int64_t row, int64_t column, int64_t count, const float *buffer) {
    if (y.parts == 1) {
        write_chunk(y.rows, row, column, count, buffer);
        return;
    }
    for (int64_t part = 0; part < y.parts; part++) {
        const float *from = buffer + part * y.width;
        if (y.rows.is_narrow)
            write_chunk(y.rows, row * y.parts + part, 0, y.width, from);
        else
            memcpy((float *)y.rows.at + (row * y.parts + part) * y.rows.pitch, from, y.width * sizeof(float));
    }
}

/* A vector as often as there are rows side by side. Returns where it ends. */
static inline float *repeat(float *restrict to, const float *restrict vector, int64_t width, int64_t times) {
    for (int64_t part = 0; part < times; part++)
        memcpy(to + part * width, vector, width * sizeof(float));
    return to + width * times;
}

#endif
