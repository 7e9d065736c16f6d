/* Sums and extremes along axes, one pass over x.
 *
 * A result is of rows of `width` elements: either each element of them has a result of its own (columns), or all go
 * into one (y_step = 0). Sums are in float32 over at most 64 terms, in float64 over these. What is added up for a
 * result is cut into pieces by its extents alone, and their sums are added up in order. */
#include "reduction.h"
#include "sums.h"

/* Elements of a row that are added up in float32, 64 by themselves. */
#define SEGMENT (64 * 4 * SIDE)

typedef struct {
    Box x, y, across;
    Extents kept, summed;
    int64_t width, y_step, pieces;
} Axes;

static Rows rows_at(Box x, int64_t start, int64_t pitch) {
    char *at = (char *)x.at + start * (is_half(x) ? 2 : 4);
    return (Rows){at, pitch, is_half(x)};
}

/* How many short rows without gaps are taken as a long one: of whole blocks of columns, if not too many. */
static int64_t rows_in_one(int64_t width, int64_t rows) {
    int64_t block = 4 * SIDE, even = width & -width, times = even < block ? block / even : 1;
    return least(times * width > CHUNK ? CHUNK / width : times, 1 + rows / 8);
}

/* Rows `first` to `end` of those that are added up for the columns from `start` on. */
INLINE void fold_columns(Fold fold, const Axes *axes, int64_t start, int64_t count, int64_t first, int64_t end,
                         double *totals) {
    int64_t line = axes->summed.of[AXES - 1], pitch = axes->across.steps[AXES - 1], width = axes->width;
    int64_t times = pitch == width && count == width ? rows_in_one(width, end - first) : 1;
    double wide[CHUNK];
    for (int64_t i = 0; i < times * count; i++)
        wide[i] = first_of(fold);
    while (first < end) {
        int64_t taken = least(line - first % line, end - first), from = start;
        from += place(axes->across, axes->summed, first);
        taken = least(taken, times * FLOAT_ROWS);
        if (taken >= times)
            taken -= taken % times;
        if (taken >= times)
            fold_rows(fold, rows_at(axes->x, from, pitch * times), taken / times, count * times, wide);
        else
            fold_rows(fold, rows_at(axes->x, from, pitch), taken, count, wide);
        first += taken;
    }
    for (int64_t i = 0; i < count; i++)
        totals[i] = wide[i];
    for (int64_t i = count; i < times * count; i++)
        totals[i % count] = folded(fold, totals[i % count], wide[i]);
}

/* Segments `first` to `end` of the rows that go into one result. */
INLINE double fold_segments(Fold fold, const Axes *axes, int64_t start, int64_t first, int64_t end) {
    int64_t of_row = quotient_up(axes->width, SEGMENT);
    double total = first_of(fold);
    for (; first < end; first++) {
        Rows row = rows_at(axes->x, start + place(axes->across, axes->summed, first / of_row), 0);
        int64_t column = first % of_row * SEGMENT, count = least(SEGMENT, axes->width - column);
        total = folded(fold, total, fold_row(fold, row, 0, column, count));
    }
    return total;
}

INLINE void reduce(Fold fold, Axes axes, double *scratch, double alpha) {
    int64_t width = axes.y_step ? axes.width : 1, chunks = quotient_up(width, CHUNK), pieces = axes.pieces;
    int64_t results = line_count(axes.kept) * axes.kept.of[AXES - 1];
    int64_t rows = line_count(axes.summed) * axes.summed.of[AXES - 1];
    int64_t parts = axes.y_step ? rows : rows * quotient_up(axes.width, SEGMENT);
#pragma omp parallel for schedule(static) if (results * rows * axes.width > SMALL)
    for (int64_t item = 0; item < results * chunks * pieces; item++) {
        int64_t result = item / (chunks * pieces), chunk = item / pieces % chunks, piece = item % pieces;
        int64_t from = place(axes.x, axes.kept, result), to = place(axes.y, axes.kept, result);
        int64_t first = piece_start(piece, pieces, parts), end = piece_start(piece + 1, pieces, parts);
        int64_t start = chunk * CHUNK, count = least(CHUNK, width - start);
        double own[CHUNK], *totals = pieces > 1 ? scratch + (result * pieces + piece) * width + start : own;
        if (axes.y_step)
            fold_columns(fold, &axes, from + start, count, first, end, totals);
        else
            *totals = fold_segments(fold, &axes, from, first, end);
        for (int64_t i = 0; i < count && pieces == 1; i++)
            set_element(axes.y.at, is_half(axes.y), to + (start + i) * axes.y_step, (float)(alpha * totals[i]));
    }
    for (int64_t item = 0; item < results * chunks && pieces > 1; item++) {
        int64_t result = item / chunks, start = item % chunks * CHUNK, count = least(CHUNK, width - start);
        int64_t to = place(axes.y, axes.kept, result);
        double *totals = scratch + result * pieces * width + start;
        for (int64_t piece = 1; piece < pieces; piece++)
            for (int64_t i = 0; i < count; i++)
                totals[i] = folded(fold, totals[i], totals[piece * width + i]);
        for (int64_t i = 0; i < count; i++)
            set_element(axes.y.at, is_half(axes.y), to + (start + i) * axes.y_step, (float)(alpha * totals[i]));
    }
}

void reduce_sum(Box x, Box y, Extents kept, Box across, Extents summed, int64_t width, int64_t y_step, int64_t pieces,
                double *scratch, double alpha) {
    reduce(SUM, (Axes){x, y, across, kept, summed, width, y_step, pieces}, scratch, alpha);
}

void reduce_max(Box x, Box y, Extents kept, Box across, Extents summed, int64_t width, int64_t y_step, int64_t pieces,
                double *scratch, double alpha) {
    reduce(LARGEST, (Axes){x, y, across, kept, summed, width, y_step, pieces}, scratch, alpha);
}

void reduce_min(Box x, Box y, Extents kept, Box across, Extents summed, int64_t width, int64_t y_step, int64_t pieces,
                double *scratch, double alpha) {
    reduce(SMALLEST, (Axes){x, y, across, kept, summed, width, y_step, pieces}, scratch, alpha);
}
