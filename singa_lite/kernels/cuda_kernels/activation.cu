// Activations and their derivatives, element by element. NaN stays NaN, as every comparison with it is false,
// and -0.0 becomes 0.0 where it is bounded by 0, so that bits do not depend on what was fused.
#include "map.cuh"

// Beyond it, the normal distribution has no mass that any dtype could show.
#define FARTHEST C(40)

__device__ inline C logistic(C x) { return C(1) / (C(1) + exp(-x)); }

__device__ inline C normal_density(C x) { return C(0.39894228040143267794) * exp(C(-0.5) * x * x); }

extern "C" __global__ void relu(Walk<2> walk, const T* x, T* y) {
    map(walk, [](C& y, C x) { y = x <= C(0) ? C(0) : x; }, out(y), in(x));
}

extern "C" __global__ void relu_derivative(Walk<3> walk, const T* dy, const T* y, T* dx) {
    map(walk, [](C& dx, C dy, C y) { dx = y > C(0) ? dy : C(0); }, out(dx), in(dy), in(y));
}

extern "C" __global__ void relu6(Walk<2> walk, const T* x, T* y) {
    map(walk, [](C& y, C x) { y = x <= C(0) ? C(0) : x > C(6) ? C(6) : x; }, out(y), in(x));
}

extern "C" __global__ void relu6_derivative(Walk<3> walk, const T* dy, const T* y, T* dx) {
    map(walk, [](C& dx, C dy, C y) { dx = y > C(0) && y < C(6) ? dy : C(0); }, out(dx), in(dy), in(y));
}

extern "C" __global__ void leaky_relu(Walk<2> walk, const T* x, T* y, double slope) {
    const C below = C(slope);
    map(walk, [=](C& y, C x) { y = x > C(0) ? x : below * x; }, out(y), in(x));
}

extern "C" __global__ void leaky_relu_derivative(Walk<3> walk, const T* dy, const T* y, T* dx, double slope) {
    const C below = C(slope);
    map(walk, [=](C& dx, C dy, C y) { dx = y > C(0) ? dy : below * dy; }, out(dx), in(dy), in(y));
}

extern "C" __global__ void elu(Walk<2> walk, const T* x, T* y, double alpha) {
    const C depth = C(alpha);
    map(walk, [=](C& y, C x) { y = x > C(0) ? x : depth * expm1(x); }, out(y), in(x));
}

extern "C" __global__ void elu_derivative(Walk<3> walk, const T* dy, const T* y, T* dx, double alpha) {
    const C depth = C(alpha);
    map(walk, [=](C& dx, C dy, C y) { dx = y > C(0) ? dy : dy * (y + depth); }, out(dx), in(dy), in(y));
}

// Where e**-x is infinite, 1 / infinity is the 0 that is wanted.
extern "C" __global__ void sigmoid(Walk<2> walk, const T* x, T* y) {
    map(walk, [](C& y, C x) { y = logistic(x); }, out(y), in(x));
}

extern "C" __global__ void sigmoid_derivative(Walk<3> walk, const T* dy, const T* y, T* dx) {
    map(walk, [](C& dx, C dy, C y) { dx = dy * (y * (C(1) - y)); }, out(dx), in(dy), in(y));
}

extern "C" __global__ void hyperbolic_tangent(Walk<2> walk, const T* x, T* y) {
    map(walk, [](C& y, C x) { y = tanh(x); }, out(y), in(x));
}

extern "C" __global__ void tanh_derivative(Walk<3> walk, const T* dy, const T* y, T* dx) {
    map(walk, [](C& dx, C dy, C y) { dx = dy * (C(1) - y * y); }, out(dx), in(dy), in(y));
}

// normcdf goes by erfc, so that nothing cancels for negative x. The bound: -infinity * 0 would be NaN.
extern "C" __global__ void gelu(Walk<2> walk, const T* x, T* y) {
    map(
        walk,
        [](C& y, C x) {
            const C bounded = x < -FARTHEST ? -FARTHEST : x;
            y = bounded * normcdf(bounded);
        },
        out(y), in(x));
}

extern "C" __global__ void gelu_derivative(Walk<3> walk, const T* dy, const T* x, T* dx) {
    map(
        walk,
        [](C& dx, C dy, C x) {
            const C bounded = x < -FARTHEST ? -FARTHEST : x > FARTHEST ? FARTHEST : x;
            dx = dy * (normcdf(bounded) + bounded * normal_density(bounded));
        },
        out(dx), in(dy), in(x));
}

// v, where (1 + tanh(v / 2)) / 2 = logistic(v): nothing cancels for negative x. The bounds: as for gelu.
__device__ inline C gelu_power(C x) { return x * (C(1.5957691216057308) + C(0.07135481627260025) * x * x); }

extern "C" __global__ void gelu_tanh(Walk<2> walk, const T* x, T* y) {
    map(
        walk,
        [](C& y, C x) {
            const C bounded = x < -FARTHEST ? -FARTHEST : x;
            y = bounded * logistic(gelu_power(bounded));
        },
        out(y), in(x));
}

// The slope at -x is 1 less that at x.
extern "C" __global__ void gelu_tanh_derivative(Walk<3> walk, const T* dy, const T* x, T* dx) {
    map(
        walk,
        [](C& dx, C dy, C x) {
            const C a = fabs(x) > FARTHEST ? FARTHEST : fabs(x);
            const C tail = logistic(-gelu_power(a));
            const C slope = C(1.5957691216057308) + C(0.21406444881780075) * a * a;
            const C below = tail * (C(1) - a * slope * (C(1) - tail));
            dx = dy * (x < C(0) ? below : C(1) - below);
        },
        out(dx), in(dy), in(x));
}

extern "C" __global__ void silu(Walk<2> walk, const T* x, T* y) {
    map(walk, [](C& y, C x) { y = x / (C(1) + exp(-x)); }, out(y), in(x));
}

extern "C" __global__ void silu_derivative(Walk<3> walk, const T* dy, const T* x, T* dx) {
    map(
        walk,
        [](C& dx, C dy, C x) {
            const C s = logistic(x);
            dx = dy * (s * (C(1) + x * (C(1) - s)));
        },
        out(dx), in(dy), in(x));
}

extern "C" __global__ void softplus(Walk<2> walk, const T* x, T* y) {
    map(walk, [](C& y, C x) { y = (x > C(0) ? x : C(0)) + log1p(exp(-fabs(x))); }, out(y), in(x));
}

extern "C" __global__ void softplus_derivative(Walk<3> walk, const T* dy, const T* y, T* dx) {
    map(walk, [](C& dx, C dy, C y) { dx = dy * -expm1(-y); }, out(dx), in(dy), in(y));
}
