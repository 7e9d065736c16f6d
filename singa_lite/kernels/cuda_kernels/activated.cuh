// Activations that a convolution does before it stores its result. Numbers as in convolution.py.
#pragma once
#include "numbers.cuh"

enum Activation { NONE, RELU, SIGMOID };

__device__ inline C activated(C x, int activation) {
    if (activation == RELU) return x <= C(0) ? C(0) : x;
    if (activation == SIGMOID) return C(1) / (C(1) + exp(-x));
    return x;
}
