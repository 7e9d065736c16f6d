/* Rows cut into pieces by their number alone, each with sums of its own, which are added up in order. */
#ifndef PIECES_H
#define PIECES_H

#include "numbers.h"

static inline int64_t piece_start(int64_t piece, int64_t pieces, int64_t rows) { return rows * piece / pieces; }

/* The sums of all pieces, `width` of each, in the place of those of the first. */
static inline void add_pieces(double *sums, int64_t pieces, int64_t width) {
#pragma omp parallel for schedule(static) if (pieces * width > SMALL)
    for (int64_t start = 0; start < width; start += CHUNK)
        for (int64_t piece = 1; piece < pieces; piece++)
            for (int64_t i = start; i < least(width, start + CHUNK); i++)
                sums[i] += sums[piece * width + i];
}

#endif
