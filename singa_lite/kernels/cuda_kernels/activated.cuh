// Activations that are done before a result is stored. Numbers as in elementwise.py; NaN stays NaN.
#pragma once
#include "numbers.cuh"

enum Activation { NONE, RELU, RELU6, SIGMOID };

__device__ inline C logistic(C x) { return C(1) / (C(1) + exp(-x)); }

// Of a convolution.
__device__ inline C activated(C x, int activation) {
    if (activation == RELU) return x <= C(0) ? C(0) : x;
    if (activation == SIGMOID) return logistic(x);
    return x;
}

// Of a sum or a normalization.
__device__ inline C bounded(C x, int bound) {
    if (bound == NONE) return x;
    return x <= C(0) ? C(0) : bound == RELU6 && x > C(6) ? C(6) : x;
}

// Whether a derivative passes where this went into the bound.
__device__ inline bool passes(C x, int bound) { return x > C(0) && (bound != RELU6 || x < C(6)); }
