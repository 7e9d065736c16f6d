/* A long short-term memory and its derivative by the gates.
 *
 *     i, f, o = gate(gates_in + h @ weight),   g = tanh(gates_in + h @ weight)
 *     c' = f * c + i * g,   h' = o * tanh(c')
 *     dc = dh * o * (1 - tanh(c')^2) + what step t + 1 carries,   carried to step t - 1: dc * f
 *     di = dc * g * slope(i),   df = dc * c * slope(f),   dg = dc * i * (1 - g^2),   do = dh * tanh(c') * slope(o)
 *
 * Each step is a product by the weight, then one pass over gates and states; backward from the last step on. */
#include "recurrence.h"
#include "recurrent.h"

/* Operands of a call. */
typedef struct {
    Rows gates_in, gates, hidden, cell;
    int64_t is_hard;
} Lstm;

/* Gates and states of one sample at one step. sums: h @ weight. */
static void lstm_cell(Lstm of, Span span, Step at, int64_t row, const float *sums) {
    float buffers[7][UNITS];
    int64_t units = span.units, is_hard = of.is_hard, own = at.own + row;
    for (int64_t unit = 0; unit < units; unit += UNITS) {
        int64_t count = least(UNITS, units - unit);
        float *made[4];
        for (int64_t each = 0; each < 4; each++) {
            int64_t column = each * units + unit;
            const float *in = read_chunk(of.gates_in, own, column, count, buffers[each]), *sum = sums + column;
            float *y = made[each] = target_chunk(of.gates, own, column, buffers[each]);
            if (each == 2)
                activate_tanh(in, sum, y, count);
            else
                activate_gate(in, sum, y, count, is_hard);
        }
        const float *i_gate = made[0], *f_gate = made[1], *g_gate = made[2], *o_gate = made[3];
        const float *before = read_chunk(of.cell, at.before + row, unit, count, buffers[4]);
        float *cell = target_chunk(of.cell, at.after + row, unit, buffers[5]);
        float *hidden = target_chunk(of.hidden, at.after + row, unit, buffers[6]);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            float c = fmaf(f_gate[i], before[i], i_gate[i] * g_gate[i]);
            cell[i] = c;
            hidden[i] = o_gate[i] * hyperbolic_tangent(c);
        }
        for (int64_t each = 0; each < 4; each++)
            write_chunk(of.gates, own, each * units + unit, count, buffers[each]);
        write_chunk(of.cell, at.after + row, unit, count, buffers[5]);
        write_chunk(of.hidden, at.after + row, unit, count, buffers[6]);
    }
    if (is_masked(span, at, row)) {
        copy_row(of.cell, at.before + row, of.cell, at.after + row, units);
        copy_row(of.hidden, at.before + row, of.hidden, at.after + row, units);
    }
}

void lstm(Rows gates_in, Rows hidden0, Rows cell0, const uint8_t *seen, Rows gates, Rows hidden, Rows cell,
          const float *panels, float *sums, float *wide, int64_t steps, int64_t rows, int64_t units, int64_t reverse,
          int64_t is_hard) {
    Span span = {steps, rows, units, reverse, seen};
    Lstm of = {gates_in, gates, hidden, cell, is_hard};
    int64_t pieces = row_pieces(span, 4), pitch = padded_columns(4 * units);
#pragma omp parallel for schedule(static) if (pieces > 1)
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t start = first_row(span, piece, pieces), end = first_row(span, piece + 1, pieces);
        begin_state(span, hidden0, hidden, start, end);
        begin_state(span, cell0, cell, start, end);
        for (int64_t number = 0; number < steps; number++) {
            Step at = step_of(span, nth_step(span, number, 0));
            multiply_rows(hidden, at.before + start, 0, end - start, units, panels, sums + start * pitch, 4 * units, 0,
                          wide + start * units);
            for (int64_t row = start; row < end; row++)
                lstm_cell(of, span, at, row, sums + row * pitch);
        }
    }
}

/* Derivatives by the gates of one sample at one step, and what goes to the step before. */
static void lstm_slopes(Lstm of, Span span, Step at, int64_t row, Rows dy, Rows dgates, const float *sums,
                        float *carried, float *carried_cell) {
    float buffers[11][UNITS];
    int64_t units = span.units, is_hard = of.is_hard, own = at.own + row, masked = is_masked(span, at, row);
    for (int64_t unit = 0; unit < units; unit += UNITS) {
        int64_t count = least(UNITS, units - unit);
        const float *gates[4];
        float *to[4], *slope = buffers[0], *carry = carried + unit, *carry_cell = carried_cell + unit;
        for (int64_t each = 0; each < 4; each++) {
            gates[each] = read_chunk(of.gates, own, each * units + unit, count, buffers[1 + each]);
            to[each] = target_chunk(dgates, own, each * units + unit, buffers[5 + each]);
        }
        const float *i_gate = gates[0], *f_gate = gates[1], *g_gate = gates[2], *o_gate = gates[3];
        const float *before = read_chunk(of.cell, at.before + row, unit, count, buffers[9]);
        const float *cell = read_chunk(of.cell, at.after + row, unit, count, buffers[10]);
        float *i_slope = to[0], *f_slope = to[1], *g_slope = to[2], *o_slope = to[3];
        receive(dy, own, unit, count, sums, carried, slope);
        if (masked) {
            memcpy(carry, slope, count * sizeof(float));
            for (int64_t each = 0; each < 4; each++)
                memset(to[each], 0, count * sizeof(float));
        } else {
#pragma omp simd
            for (int64_t n = 0; n < count; n++) {
                float i = i_gate[n], f = f_gate[n], g = g_gate[n], o = o_gate[n];
                float bent = hyperbolic_tangent(cell[n]);
                float by_cell = fmaf(slope[n] * o, 1 - bent * bent, carry_cell[n]);
                i_slope[n] = by_cell * g * gate_slope(i, is_hard);
                f_slope[n] = by_cell * before[n] * gate_slope(f, is_hard);
                g_slope[n] = by_cell * i * (1 - g * g);
                o_slope[n] = slope[n] * bent * gate_slope(o, is_hard);
                carry_cell[n] = by_cell * f;
                carry[n] = 0;
            }
        }
        for (int64_t each = 0; each < 4; each++)
            write_chunk(dgates, own, each * units + unit, count, to[each]);
    }
}

void lstm_derivative(Rows dy, const uint8_t *seen, Rows gates, Rows cell, Rows dgates, const float *panels, float *sums,
                     float *wide, float *carried, float *carried_cell, int64_t steps, int64_t rows, int64_t units,
                     int64_t reverse, int64_t last, int64_t is_hard) {
    Span span = {steps, rows, units, reverse, seen};
    Lstm of = {.gates = gates, .cell = cell, .is_hard = is_hard};
    int64_t pieces = row_pieces(span, 4), pitch = padded_columns(units);
#pragma omp parallel for schedule(static) if (pieces > 1)
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t start = first_row(span, piece, pieces), end = first_row(span, piece + 1, pieces);
        begin_carried(span, dy, last, carried, start, end);
        memset(carried_cell + start * units, 0, (end - start) * units * sizeof(float));
        for (int64_t number = 0; number < steps; number++) {
            Step at = step_of(span, nth_step(span, number, 1));
            if (number > 0)
                multiply_rows(dgates, step_of(span, nth_step(span, number - 1, 1)).own + start, 0, end - start,
                              4 * units, panels, sums + start * pitch, units, 0, wide + 4 * start * units);
            for (int64_t row = start; row < end; row++)
                lstm_slopes(of, span, at, row, last ? (Rows){NULL} : dy, dgates,
                            is_counted(span, number, row) ? sums + row * pitch : NULL, carried + row * units,
                            carried_cell + row * units);
        }
    }
}
