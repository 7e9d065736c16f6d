/* Adafactor: means of squares of rows and columns, and the step of each element. interface/update.py has the formulas.
 *
 * Of vectors there is variance, of other shapes the others; those left out are NULL. Means lie without gaps. */
#ifndef ADAFACTOR_H
#define ADAFACTOR_H

#include "numbers.h"

/* matrices, rows, columns: of the gradient; parts: of a matrix's rows, or of the matrices where these are 1. sums: of
 * each part, columns of them; squares: at least PARTIAL_SUMS. */
void adafactor(Rows gradient, const double *rate, Rows value, float *row_var, float *col_var, float *variance,
               const int64_t *count, float *scale, double *factor, double *sums, double *squares, int64_t matrices,
               int64_t rows, int64_t columns, int64_t parts, double beta_2_decay, double epsilon_1, double epsilon_2,
               double d, double lr_mult);

void adafactor_step(Rows gradient, const double *rate, Rows value, const float *scale, const float *col_var,
                    const float *variance, const double *factor, int64_t *count, int64_t matrices, int64_t rows,
                    int64_t columns, double epsilon_1, double decay, double lr_mult);

#endif
