/* The derivative of a gated recurrent unit by its gates, and by products where the reset stands after the product.
 *
 *     dz = dh * (h - n) * slope(z),   dn = dh * (1 - z) * (1 - n^2)
 *     dproducts = dn * r,   dr = dn * products * slope(r)
 *
 * From the last step on: each is a product by the weight, transposed, then one pass over gates and states. */
#include "recurrence.h"
#include "recurrent.h"

/* Operands of a call. dproducts.at: NULL where the reset stands before the product. */
typedef struct {
    Rows dy, gates, products, hidden, dgates, dproducts;
    int64_t is_hard;
} Gru;

/* Derivatives by z and n, and by r and products where the reset stands after the product. What goes by z to the step
 * before is carried. */
static void gru_slopes(Gru of, Span span, Step at, int64_t row, const float *sums, float *carried) {
    float buffers[10][UNITS];
    int64_t units = span.units, is_hard = of.is_hard, own = at.own + row, masked = is_masked(span, at, row);
    for (int64_t unit = 0; unit < units; unit += UNITS) {
        int64_t count = least(UNITS, units - unit);
        const float *gates[3];
        float *to[3], *slope = buffers[0], *carry = carried + unit;
        for (int64_t each = 0; each < 3; each++) {
            gates[each] = read_chunk(of.gates, own, each * units + unit, count, buffers[1 + each]);
            to[each] = target_chunk(of.dgates, own, each * units + unit, buffers[4 + each]);
        }
        const float *r_gate = gates[0], *z_gate = gates[1], *n_gate = gates[2];
        float *r_slope = to[0], *z_slope = to[1], *n_slope = to[2];
        const float *before = read_chunk(of.hidden, at.before + row, unit, count, buffers[7]);
        receive(of.dy, own, unit, count, sums, carried, slope);
        if (masked) {
            memcpy(carry, slope, count * sizeof(float));
            memset(z_slope, 0, count * sizeof(float));
            memset(n_slope, 0, count * sizeof(float));
        } else {
#pragma omp simd
            for (int64_t i = 0; i < count; i++) {
                float z = z_gate[i], n = n_gate[i], by_z = slope[i] * z;
                n_slope[i] = (slope[i] - by_z) * (1 - n * n);
                z_slope[i] = (before[i] - n) * slope[i] * gate_slope(z, is_hard);
                carry[i] = by_z;
            }
        }
        if (of.dproducts.at) {
            const float *product = read_chunk(of.products, own, unit, count, buffers[8]);
            float *to_product = target_chunk(of.dproducts, own, unit, buffers[9]);
            if (masked) {
                memset(r_slope, 0, count * sizeof(float));
                memset(to_product, 0, count * sizeof(float));
            } else {
#pragma omp simd
                for (int64_t i = 0; i < count; i++) {
                    float r = r_gate[i], n = n_slope[i];
                    r_slope[i] = n * product[i] * gate_slope(r, is_hard);
                    to_product[i] = n * r;
                }
            }
            write_chunk(of.dproducts, own, unit, count, to_product);
            write_chunk(of.dgates, own, unit, count, r_slope);
        }
        write_chunk(of.dgates, own, units + unit, count, z_slope);
        write_chunk(of.dgates, own, 2 * units + unit, count, n_slope);
    }
}

/* dr = b * h * slope(r), and b * r is carried, with the reset before the product. sums: b = dn @ weight_n^T. */
static void gru_reset(Gru of, Span span, Step at, int64_t row, const float *sums, float *carried) {
    float buffers[3][UNITS];
    int64_t units = span.units, is_hard = of.is_hard, own = at.own + row, masked = is_masked(span, at, row);
    for (int64_t unit = 0; unit < units; unit += UNITS) {
        int64_t count = least(UNITS, units - unit);
        const float *reset = read_chunk(of.gates, own, unit, count, buffers[0]), *sum = sums + unit;
        const float *before = read_chunk(of.hidden, at.before + row, unit, count, buffers[1]);
        float *to = target_chunk(of.dgates, own, unit, buffers[2]), *carry = carried + unit;
        if (masked) {
            memset(to, 0, count * sizeof(float));
        } else {
#pragma omp simd
            for (int64_t i = 0; i < count; i++) {
                float r = reset[i];
                carry[i] = fmaf(sum[i], r, carry[i]);
                to[i] = sum[i] * before[i] * gate_slope(r, is_hard);
            }
        }
        write_chunk(of.dgates, own, unit, count, to);
    }
}

void gru_derivative(Rows dy, const uint8_t *seen, Rows gates, Rows products, Rows hidden, Rows dgates, Rows dproducts,
                    const float *panels, const float *panels_n, float *sums, float *wide, float *carried,
                    int64_t steps, int64_t rows, int64_t units, int64_t reverse, int64_t last, int64_t is_hard) {
    Span span = {steps, rows, units, reverse, seen};
    Gru of = {last ? (Rows){NULL} : dy, gates, products, hidden, dgates, dproducts, is_hard};
    int64_t pieces = row_pieces(span, 3), pitch = padded_columns(units);
#pragma omp parallel for schedule(static) if (pieces > 1)
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t start = first_row(span, piece, pieces), end = first_row(span, piece + 1, pieces), count = end - start;
        float *own_sums = sums + start * pitch, *own_wide = wide + 2 * start * units;
        begin_carried(span, dy, last, carried, start, end);
        for (int64_t number = 0; number < steps; number++) {
            Step at = step_of(span, nth_step(span, number, 1));
            for (int64_t row = start; row < end; row++)
                gru_slopes(of, span, at, row, is_counted(span, number, row) ? sums + row * pitch : NULL,
                           carried + row * units);
            if (dproducts.at) {
                multiply_rows(dproducts, at.own + start, 0, count, units, panels_n, own_sums, units, 0, own_wide);
            } else {
                multiply_rows(dgates, at.own + start, 2 * units, count, units, panels_n, own_sums, units, 0, own_wide);
                for (int64_t row = start; row < end; row++)
                    gru_reset(of, span, at, row, sums + row * pitch, carried + row * units);
            }
            multiply_rows(dgates, at.own + start, 0, count, 2 * units, panels, own_sums, units, dproducts.at != NULL,
                          own_wide);
        }
    }
}
