/* Activations and their derivatives, of one number. Where a derivative is given the input x, it is the factor of dy. */
#ifndef ACTIVATIONS_H
#define ACTIVATIONS_H

#include "functions.h"

/* Of gelu_tanh(x) = x / (1 + e^-v), v = GELU_LINE * x + GELU_CUBE * x^3. */
#define GELU_LINE 1.59576912f
#define GELU_CUBE 0.0713548163f
/* Phi(-FARTHEST) is 0 in float32; the square of a larger number could be infinite. */
#define FARTHEST 40.0f
#define DENSITY_AT_0 0.398942280f

/* x between the bounds; NaN stays NaN, and a zero is the bound's where they are equal. */
static inline float bounded(float x, float low, float high) { return x <= low ? low : x >= high ? high : x; }

/* |x|, or FARTHEST where that is less. */
static inline float near_magnitude(float x) {
    float a = fabsf(x);
    return a > FARTHEST ? FARTHEST : a;
}

static inline float elu(float x, float alpha) { return x > 0 ? x : alpha * exponential_less_1(x); }

/* max(x, 0) - |x| * Phi(-|x|): nothing cancels as 1 + erf does for negative x. */
static inline float gelu(float x) {
    float a = near_magnitude(x), tail = normal_tail(a) * raised_exponential(-0.5f * a * a);
    return (x > 0 ? x : 0) - a * 0x1p-24f * tail;
}

/* Phi(x) + x * phi(x) = d, by d(x) = 1 - d(-x) and d(-a) = Phi(-a) - a * phi(a). */
static inline float gelu_slope(float x) {
    float a = near_magnitude(x), power = raised_exponential(-0.5f * a * a);
    float slope = power * ((normal_tail(a) - a * DENSITY_AT_0) * 0x1p-24f);
    return x < 0 ? slope : 1.0f - slope;
}

static inline float gelu_power(float x) { return fmaf(x * x, GELU_CUBE, GELU_LINE) * x; }

static inline float gelu_tanh(float x) {
    float least = x < -FARTHEST ? -FARTHEST : x;
    return least * logistic(gelu_power(least));
}

/* d(-a) = t * (1 - a * v'(a) * (1 - t)), t = logistic(-v(a)), and d(x) = 1 - d(-x). */
static inline float gelu_tanh_slope(float x) {
    float a = near_magnitude(x), tail = logistic(-gelu_power(a));
    float slope = fmaf(-a * fmaf(a * a, 3 * GELU_CUBE, GELU_LINE), 1.0f - tail, 1.0f) * tail;
    return x < 0 ? slope : 1.0f - slope;
}

static inline float silu(float x) { return x / (1.0f + exponential(-x)); }

/* s * (1 + x * (1 - s)), s = logistic(x); neither s nor 1 - s cancels. */
static inline float silu_slope(float x) {
    float power = exponential_below_0(-fabsf(x)), larger = 1.0f / (1.0f + power), smaller = power * larger;
    return (x < 0 ? smaller : larger) * fmaf(x, x < 0 ? larger : smaller, 1.0f);
}

static inline float softplus(float x) { return (x > 0 ? x : 0) + logarithm_above_1(exponential_below_0(-fabsf(x))); }

#endif
