/* Group normalization, sample by sample: sums of each channel, merged to those of its group, then a pass by channels.
 *
 *     mean = mean of the channels' means,   var * count = sum of the channels' squares about their means
 *                                                         + rows * (their means - mean)^2
 *     scale = gamma * inv_std,   slope = -inv_std^3 * mean of dy * gamma * (x - mean),
 *     offset = -inv_std * mean of dy * gamma */
#include "group_norm.h"

#include "column_norm.h"

/* The float32 vectors of a sample, which lie after the sums of all. */
static float *vectors_of(void *scratch, int64_t samples, int64_t sample, int64_t channels, int64_t vectors) {
    return (float *)((double *)scratch + 2 * channels * samples) + sample * vectors * channels;
}

/* Mean and variance of a group from sums of its channels, of distances from the shift. */
static double merge(const double *total, const double *squares, const float *shift, int64_t width, double rows,
                    double *var) {
    double first = shift[0] + total[0] / rows, mean = 0, all = 0;
    for (int64_t i = 0; i < width; i++)
        mean += shift[i] + total[i] / rows - first;
    mean = first + mean / (double)width;
    for (int64_t i = 0; i < width; i++) {
        double average = total[i] / rows, distance = shift[i] + average - mean;
        all += squares[i] - average * total[i] + rows * distance * distance;
    }
    *var = all / (rows * (double)width);
    *var = *var < 0 ? 0 : *var;
    return mean;
}

static void sum_sample(Wide x, int64_t start, int64_t rows, int64_t channels, float *shift, double *total) {
    memset(total, 0, 2 * channels * sizeof(double));
    for (int64_t column = 0; column < channels; column += SPAN) {
        int64_t count = least(SPAN, channels - column);
        float *from = shift + column;
        memmove(from, read_wide(x, start, column, count, from), count * sizeof(float));
        sum_piece(x, start, start + rows, column, count, from, total + column, total + channels + column);
    }
}

void group_norm(Rows x, Rows y, const float *gamma, const float *beta, float *mean, float *inv_std, void *scratch,
                int64_t samples, int64_t rows, int64_t channels, int64_t groups, double epsilon) {
    Wide from = wide_rows(x, samples * rows, channels, 1), to = wide_rows(y, samples * rows, channels, 1);
    int64_t width = channels / groups;
#pragma omp parallel for schedule(static) if (samples * rows * channels > SMALL)
    for (int64_t sample = 0; sample < samples; sample++) {
        double *total = (double *)scratch + 2 * channels * sample, var;
        float *shift = vectors_of(scratch, samples, sample, channels, 3), *means = shift + channels;
        float *scale = means + channels;
        sum_sample(from, sample * rows, rows, channels, shift, total);
        for (int64_t group = 0, at = sample * groups; group < groups; group++, at++) {
            int64_t first = group * width;
            mean[at] = (float)merge(total + first, total + channels + first, shift + first, width, (double)rows, &var);
            inv_std[at] = (float)(1 / sqrt(var + epsilon));
            for (int64_t i = first; i < first + width; i++) {
                means[i] = mean[at];
                scale[i] = gamma[i] * inv_std[at];
            }
        }
        Normal by = {means, scale, beta, -INFINITY, INFINITY};
        normalize_rows(from, (Wide){0}, to, by, sample * rows, (sample + 1) * rows, channels);
    }
}

/* Sums of dy and of its products with the distances from the mean, of each channel of a sample. */
static void sum_derivative(Wide dy, Wide x, const float *mean, int64_t start, int64_t rows, int64_t channels,
                           int64_t groups, float *means, double *total) {
    memset(total, 0, 2 * channels * sizeof(double));
    for (int64_t i = 0; i < channels; i++)
        means[i] = mean[i * groups / channels];
    for (int64_t column = 0; column < channels; column += SPAN)
        sum_products(dy, x, (Normal){means + column, NULL, NULL, 0, 0}, start, start + rows, column,
                     least(SPAN, channels - column), total + column, total + channels + column);
}

void group_norm_derivative(Rows dy, Rows x, Rows dx, const float *gamma, const float *mean, const float *inv_std,
                           void *scratch, int64_t samples, int64_t rows, int64_t channels, int64_t groups) {
    int64_t width = channels / groups, all = samples * rows;
    Wide slopes = wide_rows(dy, all, channels, 1), values = wide_rows(x, all, channels, 1);
    Wide results = wide_rows(dx, all, channels, 1);
#pragma omp parallel for schedule(static) if (samples * rows * channels > SMALL)
    for (int64_t sample = 0; sample < samples; sample++) {
        double *total = (double *)scratch + 2 * channels * sample;
        float *means = vectors_of(scratch, samples, sample, channels, 4), *scale = means + channels;
        float *slope = scale + channels, *offset = slope + channels;
        sum_derivative(slopes, values, mean + sample * groups, sample * rows, rows, channels, groups, means, total);
        for (int64_t group = 0; group < groups; group++) {
            double inverse = inv_std[sample * groups + group], sum = 0, product = 0;
            double share = inverse / ((double)rows * (double)width);
            int is_one = rows * width == 1; /* see row_norm.c */
            for (int64_t i = group * width; i < (group + 1) * width; i++) {
                sum += gamma[i] * total[i];
                product += gamma[i] * total[channels + i];
            }
            for (int64_t i = group * width; i < (group + 1) * width; i++) {
                scale[i] = is_one ? 0 : (float)(gamma[i] * inverse);
                slope[i] = (float)(-product * inverse * inverse * share);
                offset[i] = is_one ? 0 : (float)(-sum * share);
            }
        }
        Normal by = {means, scale, NULL, 0, 0};
        derive_rows(slopes, values, (Wide){0}, results, by, slope, offset, sample * rows, (sample + 1) * rows,
                    channels);
    }
}

void group_norm_gradient(Rows dy, Rows x, const float *mean, const float *inv_std, float *dgamma, float *dbeta,
                         void *scratch, int64_t samples, int64_t rows, int64_t channels, int64_t groups) {
    Wide slopes = wide_rows(dy, samples * rows, channels, 1), values = wide_rows(x, samples * rows, channels, 1);
    double *sums = scratch;
#pragma omp parallel for schedule(static) if (samples * rows * channels > SMALL)
    for (int64_t sample = 0; sample < samples; sample++) {
        double *total = sums + 2 * channels * sample;
        float *means = vectors_of(scratch, samples, sample, channels, 1);
        sum_derivative(slopes, values, mean + sample * groups, sample * rows, rows, channels, groups, means, total);
        for (int64_t i = 0; i < channels; i++)
            total[channels + i] *= inv_std[sample * groups + i * groups / channels];
    }
    add_pieces(sums, samples, 2 * channels);
    for (int64_t i = 0; i < channels; i++) {
        dbeta[i] = (float)sums[i];
        dgamma[i] = (float)sums[channels + i];
    }
}
