/* Softmax of the rows of a matrix, and sums of powers of e. */
#ifndef SOFTMAX_H
#define SOFTMAX_H

#include "numbers.h"

/* y = e^x / sum of e^x over each row. A row whose largest element is NaN or infinite becomes NaN. */
void softmax(Rows x, Rows y, int64_t rows, int64_t columns);

/* dx = y * (dy - sum of dy * y over the row). */
void softmax_derivative(Rows dy, Rows y, Rows dx, int64_t rows, int64_t columns);

/* y = log of the sum of e^x over each row, NaN where the largest element is NaN or infinite. */
void log_sum_exp(Rows x, float *y, int64_t rows, int64_t columns);

#endif
