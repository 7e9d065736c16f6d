/* A gated recurrent unit.
 *
 *     r, z = gate(gates_in + h @ weight + bias),   h' = n + z * (h - n)
 *     n = tanh(gates_in + r * products),   products = h @ weight_n + bias_n   where the reset stands after the product
 *     n = tanh(gates_in + products @ weight_n),   products = r * h              where it stands before it
 *
 * Each step is a product and a pass for r and z, then a product and a pass for n and the state. */
#include "recurrence.h"
#include "recurrent.h"

/* Operands of a call. */
typedef struct {
    Rows gates_in, gates, products, hidden;
    int64_t is_after, is_hard;
} Gru;

/* Fills rows of sums with the bias, which products are added to. bias.at NULL: 0. */
static void begin_sums(Rows bias, int64_t first, float *sums, int64_t pitch, int64_t rows, int64_t columns) {
    float buffer[UNITS];
    for (int64_t row = 0; row < rows; row++, sums += pitch) {
        memset(sums, 0, pitch * sizeof(float));
        for (int64_t column = 0; bias.at && column < columns; column += UNITS) {
            int64_t count = least(UNITS, columns - column);
            memcpy(sums + column, read_chunk(bias, 0, first + column, count, buffer), count * sizeof(float));
        }
    }
}

/* r, z, and products where the reset stands before the product. sums: of r and z. */
static void gru_gates(Gru of, Span span, Step at, int64_t row, const float *sums) {
    float buffers[3][UNITS];
    int64_t units = span.units, own = at.own + row, masked = is_masked(span, at, row);
    for (int64_t unit = 0; unit < units; unit += UNITS) {
        int64_t count = least(UNITS, units - unit);
        for (int64_t each = 1; each >= 0; each--) {
            int64_t column = each * units + unit;
            const float *in = read_chunk(of.gates_in, own, column, count, buffers[0]);
            float *y = target_chunk(of.gates, own, column, buffers[1]);
            activate_gate(in, sums + column, y, count, of.is_hard);
            if (each == 0 && !of.is_after) {
                const float *before = read_chunk(of.hidden, at.before + row, unit, count, buffers[0]);
                float *product = target_chunk(of.products, own, unit, buffers[2]);
#pragma omp simd
                for (int64_t i = 0; i < count; i++)
                    product[i] = y[i] * before[i];
                if (masked) /* a factor of the weight's gradient */
                    memset(product, 0, count * sizeof(float));
                write_chunk(of.products, own, unit, count, product);
            }
            write_chunk(of.gates, own, column, count, y);
        }
    }
}

/* n and the state. sums: of n. */
static void gru_state(Gru of, Span span, Step at, int64_t row, const float *sums) {
    float buffers[7][UNITS];
    int64_t units = span.units, own = at.own + row;
    for (int64_t unit = 0; unit < units; unit += UNITS) {
        int64_t count = least(UNITS, units - unit);
        const float *in = read_chunk(of.gates_in, own, 2 * units + unit, count, buffers[0]), *sum = sums + unit;
        const float *reset = read_chunk(of.gates, own, unit, count, buffers[1]);
        const float *update = read_chunk(of.gates, own, units + unit, count, buffers[2]);
        const float *before = read_chunk(of.hidden, at.before + row, unit, count, buffers[3]);
        float *n = target_chunk(of.gates, own, 2 * units + unit, buffers[4]);
        float *after = target_chunk(of.hidden, at.after + row, unit, buffers[5]);
        if (of.is_after) {
            float *product = target_chunk(of.products, own, unit, buffers[6]);
#pragma omp simd
            for (int64_t i = 0; i < count; i++) {
                product[i] = sum[i];
                n[i] = hyperbolic_tangent(fmaf(reset[i], sum[i], in[i]));
            }
            write_chunk(of.products, own, unit, count, product);
        } else {
            activate_tanh(in, sum, n, count);
        }
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            after[i] = fmaf(update[i], before[i] - n[i], n[i]);
        write_chunk(of.gates, own, 2 * units + unit, count, n);
        write_chunk(of.hidden, at.after + row, unit, count, after);
    }
    if (is_masked(span, at, row))
        copy_row(of.hidden, at.before + row, of.hidden, at.after + row, units);
}

/* panels: of r and z; panels_n: of n. */
void gru(Rows gates_in, Rows bias, Rows hidden0, const uint8_t *seen, Rows gates, Rows products, Rows hidden,
         const float *panels, const float *panels_n, float *sums, float *sums_n, float *wide, int64_t steps,
         int64_t rows, int64_t units, int64_t reverse, int64_t is_after, int64_t is_hard) {
    Span span = {steps, rows, units, reverse, seen};
    Gru of = {gates_in, gates, products, hidden, is_after, is_hard};
    int64_t pieces = row_pieces(span, 3), pitch = padded_columns(2 * units), pitch_n = padded_columns(units);
#pragma omp parallel for schedule(static) if (pieces > 1)
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t start = first_row(span, piece, pieces), end = first_row(span, piece + 1, pieces), count = end - start;
        begin_state(span, hidden0, hidden, start, end);
        for (int64_t number = 0; number < steps; number++) {
            Step at = step_of(span, nth_step(span, number, 0));
            begin_sums(bias, 0, sums + start * pitch, pitch, count, 2 * units);
            begin_sums(bias, 2 * units, sums_n + start * pitch_n, pitch_n, count, units);
            multiply_rows(hidden, at.before + start, 0, count, units, panels, sums + start * pitch, 2 * units, 1,
                          wide + start * units);
            for (int64_t row = start; row < end; row++)
                gru_gates(of, span, at, row, sums + row * pitch);
            multiply_rows(is_after ? hidden : products, (is_after ? at.before : at.own) + start, 0, count, units,
                          panels_n, sums_n + start * pitch_n, units, 1, wide + start * units);
            for (int64_t row = start; row < end; row++)
                gru_state(of, span, at, row, sums_n + row * pitch_n);
        }
    }
}
