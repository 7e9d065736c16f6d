/* Metrics of rows of scores. */
#ifndef METRIC_H
#define METRIC_H

#include "numbers.h"

/* values = share of each sample's rows whose id is among the k largest elements; of equal ones the first counts. */
void in_top_k(Rows x, Box ids, Extents of_ids, float *numbers, float *values, int64_t rows, int64_t columns,
              int64_t positions, int64_t k);

#endif
