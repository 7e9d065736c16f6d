// Bounds that a result is held to before it is stored. Numbers as in elementwise.py; NaN stays NaN.
#pragma once
#include "numbers.cuh"

enum Bound { NONE, RELU, RELU6 };

__device__ inline C logistic(C x) { return C(1) / (C(1) + exp(-x)); }

__device__ inline C bounded(C x, int bound) {
    if (bound == NONE) return x;
    return x <= C(0) ? C(0) : bound == RELU6 && x > C(6) ? C(6) : x;
}

// Whether a derivative passes where this went into the bound.
__device__ inline bool passes(C x, int bound) { return x > C(0) && (bound != RELU6 || x < C(6)); }
