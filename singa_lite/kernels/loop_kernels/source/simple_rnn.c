/* A simple recurrent layer, h' = f(gates_in + h @ weight), f: tanh or relu, and its derivative by gates_in. */
#include "recurrence.h"
#include "recurrent.h"

/* The state of one sample after one step. sums: h @ weight. */
static void rnn_cell(Rows gates_in, Rows hidden, Span span, Step at, int64_t row, int64_t is_relu, const float *sums) {
    float buffers[2][UNITS];
    for (int64_t unit = 0; unit < span.units; unit += UNITS) {
        int64_t count = least(UNITS, span.units - unit);
        const float *in = read_chunk(gates_in, at.own + row, unit, count, buffers[0]), *sum = sums + unit;
        float *y = target_chunk(hidden, at.after + row, unit, buffers[1]);
        if (is_relu) {
#pragma omp simd
            for (int64_t i = 0; i < count; i++) {
                float value = in[i] + sum[i];
                y[i] = value < 0 ? 0 : value;
            }
        } else {
            activate_tanh(in, sum, y, count);
        }
        write_chunk(hidden, at.after + row, unit, count, y);
    }
    if (is_masked(span, at, row))
        copy_row(hidden, at.before + row, hidden, at.after + row, span.units);
}

void simple_rnn(Rows gates_in, Rows hidden0, const uint8_t *seen, Rows hidden, const float *panels, float *sums,
                float *wide, int64_t steps, int64_t rows, int64_t units, int64_t reverse, int64_t is_relu) {
    Span span = {steps, rows, units, reverse, seen};
    int64_t pieces = row_pieces(span, 1), pitch = padded_columns(units);
#pragma omp parallel for schedule(static) if (pieces > 1)
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t start = first_row(span, piece, pieces), end = first_row(span, piece + 1, pieces);
        begin_state(span, hidden0, hidden, start, end);
        for (int64_t number = 0; number < steps; number++) {
            Step at = step_of(span, nth_step(span, number, 0));
            multiply_rows(hidden, at.before + start, 0, end - start, units, panels, sums + start * pitch, units, 0,
                          wide + start * units);
            for (int64_t row = start; row < end; row++)
                rnn_cell(gates_in, hidden, span, at, row, is_relu, sums + row * pitch);
        }
    }
}

/* The derivative of one sample at one step. */
static void rnn_slopes(Rows dy, Rows hidden, Rows dgates, Span span, Step at, int64_t row, int64_t is_relu,
                       const float *sums, float *carried) {
    float buffers[3][UNITS];
    int64_t masked = is_masked(span, at, row);
    for (int64_t unit = 0; unit < span.units; unit += UNITS) {
        int64_t count = least(UNITS, span.units - unit);
        const float *state = read_chunk(hidden, at.after + row, unit, count, buffers[0]);
        float *slope = buffers[1], *carry = carried + unit;
        receive(dy, at.own + row, unit, count, sums, carried, slope);
        float *to = target_chunk(dgates, at.own + row, unit, buffers[2]);
        if (masked) {
            memcpy(carry, slope, count * sizeof(float));
            memset(to, 0, count * sizeof(float));
        } else {
#pragma omp simd
            for (int64_t i = 0; i < count; i++) {
                float y = state[i], by_relu = y > 0 ? 1 : y;
                to[i] = slope[i] * (is_relu ? by_relu : 1 - y * y);
                carry[i] = 0;
            }
        }
        write_chunk(dgates, at.own + row, unit, count, to);
    }
}

void simple_rnn_derivative(Rows dy, const uint8_t *seen, Rows hidden, Rows dgates, const float *panels, float *sums,
                           float *wide, float *carried, int64_t steps, int64_t rows, int64_t units, int64_t reverse,
                           int64_t last, int64_t is_relu) {
    Span span = {steps, rows, units, reverse, seen};
    int64_t pieces = row_pieces(span, 1), pitch = padded_columns(units);
#pragma omp parallel for schedule(static) if (pieces > 1)
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t start = first_row(span, piece, pieces), end = first_row(span, piece + 1, pieces);
        begin_carried(span, dy, last, carried, start, end);
        for (int64_t number = 0; number < steps; number++) {
            Step at = step_of(span, nth_step(span, number, 1));
            if (number > 0)
                multiply_rows(dgates, step_of(span, nth_step(span, number - 1, 1)).own + start, 0, end - start, units,
                              panels, sums + start * pitch, units, 0, wide + start * units);
            for (int64_t row = start; row < end; row++)
                rnn_slopes(last ? (Rows){NULL} : dy, hidden, dgates, span, at, row, is_relu,
                           is_counted(span, number, row) ? sums + row * pitch : NULL, carried + row * units);
        }
    }
}
