/* Operations element by element: OF(name, result of a, b and c). p, q: settings; an activation's derivative is given
 * a = dy, and b, the activation's input or result. Names are those of the interface, where that has one. */
#ifndef OPERATIONS_H
#define OPERATIONS_H

#include "activations.h"

#define OPERATIONS(OF) \
    OF(copy, a) \
    OF(fill, p) \
    OF(add, a + b) \
    OF(subtract, a - b) \
    OF(multiply, a *b) \
    OF(divide, a / b) \
    OF(scale, fmaf(a, p, q)) \
    OF(square_root, sqrtf(a)) \
    OF(square, a *a) \
    OF(inverse, 1.0f / a) \
    OF(inverse_root, 1.0f / sqrtf(a)) \
    OF(exp, exponential(a)) \
    OF(log, logarithm(a)) \
    OF(absolute, fabsf(a)) \
    OF(absolute_derivative, a * (float)((b > 0) - (b < 0))) \
    OF(clip, bounded(a, p, q)) \
    OF(clip_derivative, (b >= p) & (b <= q) ? a : 0) \
    OF(maximum, (a > b) | (a != a) ? a : b) \
    OF(minimum, (a < b) | (a != a) ? a : b) \
    OF(maximum_derivative, b < c ? 0 : b == c ? 0.5f * a : a) \
    OF(equal, a == b) \
    OF(not_equal, a != b) \
    OF(less, a < b) \
    OF(less_equal, a <= b) \
    OF(where, a != 0 ? b : c) \
    OF(dropout, b >= p ? a / q : 0) \
    OF(relu, a <= 0 ? 0 : a) \
    OF(relu_derivative, b > 0 ? a : 0) \
    OF(relu6, bounded(a, 0, 6)) \
    OF(relu6_derivative, (b > 0) & (b < 6) ? a : 0) \
    OF(leaky_relu, a > 0 ? a : p * a) \
    OF(leaky_relu_derivative, b > 0 ? a : p * a) \
    OF(elu, elu(a, p)) \
    OF(elu_derivative, b > 0 ? a : a * (b + p)) \
    OF(sigmoid, logistic(a)) \
    OF(sigmoid_derivative, a * (b * (1.0f - b))) \
    OF(tanh, hyperbolic_tangent(a)) \
    OF(tanh_derivative, a * fmaf(-b, b, 1.0f)) \
    OF(gelu, gelu(a)) \
    OF(gelu_derivative, a * gelu_slope(b)) \
    OF(gelu_tanh, gelu_tanh(a)) \
    OF(gelu_tanh_derivative, a * gelu_tanh_slope(b)) \
    OF(silu, silu(a)) \
    OF(silu_derivative, a * silu_slope(b)) \
    OF(softplus, softplus(a)) \
    OF(softplus_derivative, a * -exponential_less_1(-b)) \
    OF(squared_error, (a - b) * (a - b) * 0.5f) \
    OF(squared_error_derivative, a * (b - c)) \
    OF(sigmoid_error, a * p * (logistic(b) - c)) \
    OF(bounded_error, a * p * bounded(b - c, -q, q)) \
    OF(weigh, b == 0 ? 0 : a * b)

#endif
