/* Functions of one number that vector loops inline: exact to 2 or 3 units of float32's rounding.
 *
 * NaN gives NaN, infinities give the limits, and no branch is taken. Polynomials were fitted to the least largest
 * relative error. */
#ifndef FUNCTIONS_H
#define FUNCTIONS_H

#include "numbers.h"

/* A whole number in the low bits of the sum with this: 1.5 * 2^23. */
#define WHOLE 12582912.0f

/* x = times * log(2) + rest, rest at most log(2) / 2 from 0. */
typedef struct {
    int32_t times;
    float rest;
} Parts;

static inline Parts parts_by_log2(float x) {
    float sum = fmaf(x, 1.44269504f, WHOLE), whole = sum - WHOLE;
    float rest = fmaf(whole, -1.42860682e-6f, fmaf(whole, -0.693145752f, x));
    return (Parts){(int32_t)(bits_of(sum) - bits_of(WHOLE)), rest};
}

/* 2^power; power from -126 to 127. */
static inline float whole_power_of_2(int32_t power) { return number_of((uint32_t)(power + 127) << 23); }

/* e^x - 1 for x at most log(2) / 2 from 0. */
static inline float near_0(float x) {
    float sum = fmaf(x, 1.39505346e-3f, 8.36891867e-3f);
    sum = fmaf(fmaf(fmaf(sum, x, 4.16662060e-2f), x, 0.166665182f), x, 0.5f);
    return fmaf(x * x, sum, x);
}

/* e^x. */
static inline float exponential(float x) {
    x = x > 89.0f ? 89.0f : x;
    Parts parts = parts_by_log2(x < -104.0f ? -104.0f : x);
    int32_t half = parts.times >> 1; /* 2^times itself may be no float32 */
    return (1.0f + near_0(parts.rest)) * whole_power_of_2(half) * whole_power_of_2(parts.times - half);
}

/* 2^24 * e^x for x at most 0: a normal number, so that one factor makes it; e^-104 is 0 in float32. */
static inline float raised_exponential(float x) {
    Parts parts = parts_by_log2(x < -104.0f ? -104.0f : x);
    return (1.0f + near_0(parts.rest)) * whole_power_of_2(parts.times + 24);
}

/* e^x for x at most 0. */
static inline float exponential_below_0(float x) { return raised_exponential(x) * 0x1p-24f; }

/* e^x - 1, exact where x is near 0. */
static inline float exponential_less_1(float x) {
    x = x > 89.0f ? 89.0f : x;
    Parts parts = parts_by_log2(x < -30.0f ? -30.0f : x);
    float half = whole_power_of_2(parts.times - 1);
    return 2.0f * fmaf(near_0(parts.rest), half, half - 0.5f);
}

/* 1 / (1 + e^-x). */
static inline float logistic(float x) {
    float power = raised_exponential(-fabsf(x)), larger = 1.0f / fmaf(power, 0x1p-24f, 1.0f);
    return x < 0 ? power * larger * 0x1p-24f : larger;
}

static inline float hyperbolic_tangent(float x) {
    float less = exponential_less_1(-2.0f * fabsf(x));
    return copysignf(less / (2.0f + less), x);
}

/* Natural logarithm: -infinity at 0, NaN below. */
static inline float logarithm(float x) {
    int32_t is_tiny = x < 1.17549435e-38f;
    float scaled = is_tiny ? x * 8388608.0f : x;
    /* scaled = 2^times * (1 + rest), 1 + rest from sqrt(1/2) to sqrt(2) */
    int32_t bits = (int32_t)bits_of(scaled), times = (bits - 0x3f3504f3) >> 23;
    float rest = number_of((uint32_t)(bits - times * (1 << 23))) - 1.0f;
    float whole = (float)(times - (is_tiny ? 23 : 0));
    float sum = fmaf(rest, -7.85942376e-2f, 0.128815815f);
    sum = fmaf(fmaf(sum, rest, -0.131287932f), rest, 0.141812027f);
    sum = fmaf(fmaf(sum, rest, -0.166245505f), rest, 0.200022861f);
    sum = fmaf(fmaf(sum, rest, -0.250008106f), rest, 0.333333164f);
    float small = fmaf(rest * rest, fmaf(rest, sum, -0.5f), whole * -2.12194440e-4f);
    float result = fmaf(whole, 0.693359375f, rest + small);
    result = x == 0.0f ? -INFINITY : result;
    return (x >= 0.0f) & (x < INFINITY) ? result : x == INFINITY ? x : NAN;
}

/* log(1 + x) for x from 0 to 1, exact where x is near 0: 2 * artanh(x / (2 + x)). */
static inline float logarithm_above_1(float x) {
    float z = x / (2.0f + x), square = z * z;
    float sum = fmaf(fmaf(square, 0.121504754f, 0.107138261f), square, 0.143084422f);
    sum = fmaf(fmaf(sum, square, 0.199994385f), square, 0.333333373f);
    return 2.0f * fmaf(z * square, sum, z);
}

/* Phi(-a) * e^(a * a / 2) for a from 0 on, Phi the standard normal distribution: a polynomial in (a - 4) / (a + 4), as
 * in numpy_kernels/normal_tail.py. */
static inline float normal_tail(float a) {
    float u = (a - 4.0f) / (a + 4.0f);
    float sum = fmaf(u, 1.87867172e-05f, -3.57766839e-05f);
    sum = fmaf(fmaf(fmaf(sum, u, -0.000177111768f), u, 0.000629872608f), u, 0.000502586539f);
    sum = fmaf(fmaf(fmaf(sum, u, -0.00848834962f), u, 0.0308659375f), u, -0.0717080608f);
    sum = fmaf(fmaf(fmaf(sum, u, 0.124379158f), u, -0.170397684f), u, 0.094410643f);
    return sum;
}

#endif
