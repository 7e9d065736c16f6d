/* Sums and extremes: of rows, of the columns of a few rows, and of pieces of the rows.
 *
 * Terms are added up in float32, some 64 of them, and these sums in float64. Rows are cut into pieces by their number
 * alone, and the pieces' sums are added up in order: results are the same for every number of threads. */
#ifndef SUMS_H
#define SUMS_H

#include "numbers.h"

#pragma GCC diagnostic ignored "-Wpsabi" /* of vectors as arguments: the functions are inlined */
/* Numbers that are taken side by side, the same number for every processor, so that sums have the same bits. */
#define SIDE 16
/* Rows whose columns are added up in float32. */
#define FLOAT_ROWS 64

typedef float Numbers __attribute__((vector_size(4 * SIDE), aligned(4), may_alias));
typedef uint32_t Words __attribute__((vector_size(4 * SIDE), aligned(4), may_alias));
typedef uint16_t Halves __attribute__((vector_size(2 * SIDE), aligned(2), may_alias));

/* What two numbers become: their sum, or the larger or smaller one, NaN before both. */
typedef enum { SUM, LARGEST, SMALLEST } Fold;

/* What a fold begins with. */
INLINE float first_of(Fold fold) { return fold == SUM ? 0 : fold == LARGEST ? -INFINITY : INFINITY; }

INLINE double folded(Fold fold, double a, double b) {
    if (fold == SUM)
        return a + b;
    return (b != b) | (fold == LARGEST ? b > a : b < a) ? b : a;
}

INLINE Numbers folded_all(Fold fold, Numbers a, Numbers b) {
    if (fold == SUM)
        return a + b;
    Words second = (Words)((b != b) | (fold == LARGEST ? b > a : b < a));
    return (Numbers)((second & (Words)b) | (~second & (Words)a));
}

/* SIDE elements of a row in float32. */
INLINE Numbers numbers_at(Rows rows, int64_t row, int64_t column) {
    int64_t at = row * rows.pitch + column;
    if (!rows.is_narrow)
        return *(const Numbers *)((const float *)rows.at + at);
    return (Numbers)(__builtin_convertvector(*(const Halves *)((const uint16_t *)rows.at + at), Words) << 16);
}

INLINE float number_at(Rows rows, int64_t row, int64_t column) {
    return element(rows.at, rows.is_narrow, row * rows.pitch + column);
}

static inline void set_number(Rows x, int64_t row, int64_t column, float value) {
    set_element(x.at, x.is_narrow, row * x.pitch + column, value);
}

/* The rows from that one on. */
static inline Rows rows_from(Rows x, int64_t row) {
    return (Rows){(char *)x.at + row * x.pitch * (x.is_narrow ? 2 : 4), x.pitch, x.is_narrow};
}

/* Of all lanes. */
INLINE float fold_lanes(Fold fold, Numbers all) {
    all = folded_all(fold, all, __builtin_shuffle(all, (Words){8, 9, 10, 11, 12, 13, 14, 15}));
    all = folded_all(fold, all, __builtin_shuffle(all, (Words){4, 5, 6, 7}));
    return (float)folded(fold, folded(fold, all[0], all[2]), folded(fold, all[1], all[3]));
}

/* Of elements of a row. Sums are in float32, over a 64th of them each. */
INLINE float fold_row(Fold fold, Rows x, int64_t row, int64_t column, int64_t count) {
    Numbers sums[4];
    int64_t i = 0;
    for (int each = 0; each < 4; each++)
        sums[each] = (Numbers){} + first_of(fold);
    for (; i + 4 * SIDE <= count; i += 4 * SIDE)
        for (int each = 0; each < 4; each++)
            sums[each] = folded_all(fold, sums[each], numbers_at(x, row, column + i + each * SIDE));
    for (; i + SIDE <= count; i += SIDE)
        sums[0] = folded_all(fold, sums[0], numbers_at(x, row, column + i));
    Numbers all = folded_all(fold, folded_all(fold, sums[0], sums[1]), folded_all(fold, sums[2], sums[3]));
    for (; i < count; i++)
        all[i % SIDE] = (float)folded(fold, all[i % SIDE], number_at(x, row, column + i));
    return fold_lanes(fold, all);
}

/* Of SIDE * vectors columns of the rows, into `totals`. */
INLINE void fold_block(Fold fold, Rows x, int64_t rows, int64_t column, const int vectors, double *totals) {
    Numbers sums[4];
    for (int each = 0; each < vectors; each++)
        sums[each] = (Numbers){} + first_of(fold);
    for (int64_t row = 0; row < rows; row++)
        for (int each = 0; each < vectors; each++)
            sums[each] = folded_all(fold, sums[each], numbers_at(x, row, column + each * SIDE));
    for (int each = 0; each < vectors; each++)
        for (int lane = 0; lane < SIDE; lane++)
            totals[each * SIDE + lane] = folded(fold, totals[each * SIDE + lane], sums[each][lane]);
}

/* Of the columns of at most FLOAT_ROWS rows, into `totals`. */
INLINE void fold_rows(Fold fold, Rows x, int64_t rows, int64_t count, double *totals) {
    int64_t column = 0;
    for (; column + 4 * SIDE <= count; column += 4 * SIDE)
        fold_block(fold, x, rows, column, 4, totals + column);
    for (; column + SIDE <= count; column += SIDE)
        fold_block(fold, x, rows, column, 1, totals + column);
    for (; column < count; column++)
        for (int64_t row = 0; row < rows; row++)
            totals[column] = folded(fold, totals[column], number_at(x, row, column));
}

/* The sum of a row. */
static inline double sum_of_row(Rows x, int64_t row, int64_t columns) {
    double total = 0;
    for (int64_t column = 0; column < columns; column += CHUNK)
        total += fold_row(SUM, x, row, column, least(CHUNK, columns - column));
    return total;
}

/* The row at which a piece begins. */
static inline int64_t piece_start(int64_t piece, int64_t pieces, int64_t rows) { return rows * piece / pieces; }

/* The sums of all pieces, `width` of each, in the place of those of the first. */
static inline void add_pieces(double *sums, int64_t pieces, int64_t width) {
#pragma omp parallel for schedule(static) if (pieces * width > SMALL)
    for (int64_t start = 0; start < width; start += CHUNK)
        for (int64_t piece = 1; piece < pieces; piece++)
            for (int64_t i = start; i < least(width, start + CHUNK); i++)
                sums[i] += sums[piece * width + i];
}

/* y = means of so many numbers each. */
static inline void mean_of_rows(const float *numbers, float *y, int64_t rows, int64_t columns) {
    Rows all = {(void *)numbers, columns, 0};
    for (int64_t row = 0; row < rows; row++)
        y[row] = (float)(sum_of_row(all, row, columns) / (double)columns);
}

#endif
