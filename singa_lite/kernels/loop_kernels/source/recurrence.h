/* What the recurrent kernels share: the order of steps, the states before them, and slopes of activations.
 *
 * No sample depends on another one, so each thread takes some samples through all steps. Of each step it multiplies the
 * states by the weight, then goes over gates and states once, a chunk of UNITS units at a time. Tensors (t, n, ..) have
 * row `step * n + sample`. */
#ifndef RECURRENCE_H
#define RECURRENCE_H

#include <omp.h>

#include "functions.h"
#include "panel_product.h"

/* Units whose gates and states are read, computed and written at a time. */
#define UNITS 128
/* Multiply-adds of a call that one thread does faster than it wakes others. */
#define FEW_PRODUCTS (1 << 20)

/* Sizes of a call. seen: (steps, rows), 0 where a step leaves the states as they are; NULL: nowhere. */
typedef struct {
    int64_t steps, rows, units, reverse;
    const uint8_t *seen;
} Span;

/* Rows of a step in its tensors, and of the states before and after it. */
typedef struct {
    int64_t own, before, after;
} Step;

static inline Step step_of(Span span, int64_t step) {
    return (Step){step * span.rows, (step + span.reverse) * span.rows, (step + 1 - span.reverse) * span.rows};
}

/* The step that is done after so many others. */
static inline int64_t nth_step(Span span, int64_t number, int is_backward) {
    return span.reverse == is_backward ? number : span.steps - 1 - number;
}

static inline int is_masked(Span span, Step at, int64_t row) { return span.seen && !span.seen[at.own + row]; }

/* Into how many pieces the samples are cut: one for each thread. Results do not depend on it. */
static inline int64_t row_pieces(Span span, int64_t gates) {
    int64_t products = span.steps * span.rows * span.units * span.units * gates;
    return products > FEW_PRODUCTS ? least(omp_get_max_threads(), span.rows) : 1;
}

static inline int64_t first_row(Span span, int64_t piece, int64_t pieces) { return piece * span.rows / pieces; }

/* Copies a row of `columns` elements. from.at NULL: 0. */
static inline void copy_row(Rows from, int64_t from_row, Rows to, int64_t to_row, int64_t columns) {
    float buffer[UNITS], zeros[UNITS] = {0};
    for (int64_t column = 0; column < columns; column += UNITS) {
        int64_t count = least(UNITS, columns - column);
        const float *given = from.at ? read_chunk(from, from_row, column, count, buffer) : zeros;
        memmove(target_chunk(to, to_row, column, buffer), given, count * sizeof(float));
        write_chunk(to, to_row, column, count, buffer);
    }
}

/* The state before the first step. given.at NULL: 0. */
static inline void begin_state(Span span, Rows given, Rows state, int64_t start, int64_t end) {
    int64_t before = step_of(span, nth_step(span, 0, 0)).before;
    for (int64_t row = start; row < end; row++)
        copy_row(given, row, state, before + row, span.units);
}

/* c = rows of a matrix by packed ones, see `multiply_panels`. wide: buffer for narrow rows in float32. */
static inline void multiply_rows(Rows a, int64_t first, int64_t column, int64_t rows, int64_t depth,
                                 const float *panels, float *c, int64_t columns, int64_t adds, float *wide) {
    const float *from = (const float *)a.at + first * a.pitch + column;
    if (a.is_narrow)
        for (int64_t row = 0; row < rows; row++)
            read_chunk(a, first + row, column, depth, wide + row * depth);
    multiply_panels(a.is_narrow ? wide : from, a.is_narrow ? depth : a.pitch, panels, c, padded_columns(columns), rows,
                    depth, columns, adds);
}

/* Behind the last step only dy of that step is carried, where no other has one. */
static inline void begin_carried(Span span, Rows dy, int64_t last, float *carried, int64_t start, int64_t end) {
    Rows none = {NULL}, to = {carried, span.units, 0};
    for (int64_t row = start; row < end; row++)
        copy_row(last ? dy : none, row, to, row, span.units);
}

/* Whether the derivative by the states goes through the weight at the step of a walk back before this one. */
static inline int is_counted(Span span, int64_t number, int64_t row) {
    return number > 0 && !is_masked(span, step_of(span, nth_step(span, number - 1, 1)), row);
}

/* The derivative by a step's output: what is carried past the step after it, what came through the weight, and dy.
 * sums and dy.at: NULL for none. */
static inline void receive(Rows dy, int64_t row, int64_t unit, int64_t count, const float *sums, const float *carried,
                           float *slopes) {
    float buffer[UNITS];
    memcpy(slopes, carried + unit, count * sizeof(float));
    if (sums)
        for (int64_t i = 0; i < count; i++)
            slopes[i] += sums[unit + i];
    if (!dy.at)
        return;
    const float *given = read_chunk(dy, row, unit, count, buffer);
    for (int64_t i = 0; i < count; i++)
        slopes[i] += given[i];
}

static inline float hard_logistic(float x) {
    x = fmaf(x, 1.0f / 6, 0.5f);
    x = x < 0 ? 0 : x;
    return x > 1 ? 1 : x;
}

/* y = the activation of x + sum. */
static inline void activate_gate(const float *x, const float *sum, float *y, int64_t count, int64_t is_hard) {
    if (is_hard) {
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            y[i] = hard_logistic(x[i] + sum[i]);
    } else {
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            y[i] = logistic(x[i] + sum[i]);
    }
}

/* y = tanh(x + sum). */
static inline void activate_tanh(const float *x, const float *sum, float *y, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        y[i] = hyperbolic_tangent(x[i] + sum[i]);
}

/* The slope of a gate's activation where its result is y. */
static inline float gate_slope(float y, int64_t is_hard) {
    float slope = (1 - y) * y;
    return is_hard && slope > 0 ? 1.0f / 6 : slope;
}

#endif
