// Activations and their derivatives, element by element. NaN stays NaN, as every comparison with it is false,
// and -0.0 becomes 0.0 where it is bounded by 0, so that bits do not depend on what was fused.
#include "activated.cuh"
#include "map.cuh"

// Beyond it, the normal distribution has no mass that any dtype could show.
#define FARTHEST C(40)

__device__ inline C normal_density(C x) { return C(0.39894228040143267794) * exp(C(-0.5) * x * x); }

// Not below, and not beyond, where -infinity * 0 would be NaN.
__device__ inline C from_least(C x) { return x < -FARTHEST ? -FARTHEST : x; }
__device__ inline C within_farthest(C x) { return x < -FARTHEST ? -FARTHEST : x > FARTHEST ? FARTHEST : x; }

MAP_1(relu, y, x, x <= C(0) ? C(0) : x)
MAP_2(relu_derivative, dx, dy, y, y > C(0) ? dy : C(0))

MAP_1(relu6, y, x, x <= C(0) ? C(0) : x > C(6) ? C(6) : x)
MAP_2(relu6_derivative, dx, dy, y, y > C(0) && y < C(6) ? dy : C(0))

MAP_1_BY(leaky_relu, y, x, slope, x > C(0) ? x : slope * x)
MAP_2_BY(leaky_relu_derivative, dx, dy, y, slope, y > C(0) ? dy : slope * dy)

MAP_1_BY(elu, y, x, depth, x > C(0) ? x : depth * expm1(x))
MAP_2_BY(elu_derivative, dx, dy, y, depth, y > C(0) ? dy : dy * (y + depth))

// Where e**-x is infinite, 1 / infinity is the 0 that is wanted.
MAP_1(sigmoid, y, x, logistic(x))
MAP_2(sigmoid_derivative, dx, dy, y, dy * (y * (C(1) - y)))

MAP_1(hyperbolic_tangent, y, x, tanh(x))
MAP_2(tanh_derivative, dx, dy, y, dy * (C(1) - y * y))

// normcdf goes by erfc, so that nothing cancels for negative x.
__device__ inline C gelu_slope(C x) { return normcdf(x) + x * normal_density(x); }

MAP_1(gelu, y, x, from_least(x) * normcdf(from_least(x)))
MAP_2(gelu_derivative, dx, dy, x, dy * gelu_slope(within_farthest(x)))

// v, where (1 + tanh(v / 2)) / 2 = logistic(v): nothing cancels for negative x.
__device__ inline C gelu_power(C x) { return x * (C(1.5957691216057308) + C(0.07135481627260025) * x * x); }

// The slope at -x is 1 less that at x.
__device__ inline C gelu_tanh_slope(C x) {
    const C a = fabs(x) > FARTHEST ? FARTHEST : fabs(x);
    const C tail = logistic(-gelu_power(a));
    const C slope = C(1.5957691216057308) + C(0.21406444881780075) * a * a;
    const C below = tail * (C(1) - a * slope * (C(1) - tail));
    return x < C(0) ? below : C(1) - below;
}

MAP_1(gelu_tanh, y, x, from_least(x) * logistic(gelu_power(from_least(x))))
MAP_2(gelu_tanh_derivative, dx, dy, x, dy * gelu_tanh_slope(x))

// s = sigmoid(x).
__device__ inline C silu_slope(C x, C s) { return s * (C(1) + x * (C(1) - s)); }

MAP_1(silu, y, x, x / (C(1) + exp(-x)))
MAP_2(silu_derivative, dx, dy, x, dy * silu_slope(x, logistic(x)))

MAP_1(softplus, y, x, (x > C(0) ? x : C(0)) + log1p(exp(-fabs(x))))
MAP_2(softplus_derivative, dx, dy, y, dy * -expm1(-y))
