// Activations that are done before a sum or a normalization is stored. Numbers as in bounds.py; NaN stays NaN.
#pragma once
#include "numbers.cuh"

enum Bound { NO_BOUND, RELU, RELU6 };

__device__ inline C bounded(C x, int bound) {
    if (bound == NO_BOUND) return x;
    return x <= C(0) ? C(0) : bound == RELU6 && x > C(6) ? C(6) : x;
}

// Whether a derivative passes where this went into the bound.
__device__ inline bool passes(C x, int bound) { return x > C(0) && (bound != RELU6 || x < C(6)); }
