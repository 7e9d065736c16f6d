/* Recurrent layers over all time steps, see interface/recurrent.py.
 *
 * t = steps, n = rows, h = units. Tensors (t, n, ..) are rows `step * n + sample`. seen: (t, n), 0 where a step leaves
 * the states as they are; NULL: nowhere. Panels are the weight, packed; sums: (n, padded_columns(..)) of the result of a
 * product; wide: (n, ..) of its factor, where that is bfloat16. carried: (n, h). */
#ifndef RECURRENT_H
#define RECURRENT_H

#include "numbers.h"

/* seen (t, n) = mask (n, t) != 0. Strides are in bytes; is_float: -0 is 0. */
void mark_seen(const void *mask, uint8_t *seen, int64_t steps, int64_t rows, int64_t step_stride, int64_t row_stride,
               int64_t bytes, int64_t is_float);

/* i, f, g, o = gates of gates_in + h @ weight; c' = f * c + i * g; h' = o * tanh(c'). panels: (h, 4 * h). */
void lstm(Rows gates_in, Rows hidden0, Rows cell0, const uint8_t *seen, Rows gates, Rows hidden, Rows cell,
          const float *panels, float *sums, float *wide, int64_t steps, int64_t rows, int64_t units, int64_t reverse,
          int64_t is_hard);

/* dgates of `lstm`. panels: of the weight transposed, (4 * h, h). carried_cell: as carried. */
void lstm_derivative(Rows dy, const uint8_t *seen, Rows gates, Rows cell, Rows dgates, const float *panels, float *sums,
                     float *wide, float *carried, float *carried_cell, int64_t steps, int64_t rows, int64_t units,
                     int64_t reverse, int64_t last, int64_t is_hard);

/* r, z = gates of gates_in + h @ weight + bias; n by the reset gate after the product or before; h' = n + z * (h - n).
 * bias.at: NULL for none. panels: (h, 2 * h) of r and z; panels_n: (h, h); sums_n: as sums. */
void gru(Rows gates_in, Rows bias, Rows hidden0, const uint8_t *seen, Rows gates, Rows products, Rows hidden,
         const float *panels, const float *panels_n, float *sums, float *sums_n, float *wide, int64_t steps,
         int64_t rows, int64_t units, int64_t reverse, int64_t is_after, int64_t is_hard);

/* dgates and dproducts of `gru`; dproducts.at: NULL where the reset stands before the product. panels: of the weight of
 * r and z transposed, (2 * h, h); panels_n: (h, h). */
void gru_derivative(Rows dy, const uint8_t *seen, Rows gates, Rows products, Rows hidden, Rows dgates, Rows dproducts,
                    const float *panels, const float *panels_n, float *sums, float *wide, float *carried,
                    int64_t steps, int64_t rows, int64_t units, int64_t reverse, int64_t last, int64_t is_hard);

/* h' = tanh(gates_in + h @ weight), or relu of it. panels: (h, h). */
void simple_rnn(Rows gates_in, Rows hidden0, const uint8_t *seen, Rows hidden, const float *panels, float *sums,
                float *wide, int64_t steps, int64_t rows, int64_t units, int64_t reverse, int64_t is_relu);

/* dgates of `simple_rnn`. panels: of the weight transposed. */
void simple_rnn_derivative(Rows dy, const uint8_t *seen, Rows hidden, Rows dgates, const float *panels, float *sums,
                           float *wide, float *carried, int64_t steps, int64_t rows, int64_t units, int64_t reverse,
                           int64_t last, int64_t is_relu);

#endif
