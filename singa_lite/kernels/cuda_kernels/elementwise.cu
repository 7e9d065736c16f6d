// Arithmetic element by element; operands broadcast by strides of 0.
#include "activated.cuh"
#include "map.cuh"

MAP_2(add, y, a, b, a + b)
MAP_2(subtract, y, a, b, a - b)
MAP_2(multiply, y, a, b, a * b)
MAP_2(divide, y, a, b, a / b)
MAP_1(exponential, y, x, exp(x))
MAP_1(logarithm, y, x, log(x))

// 0 where the weight is 0.
MAP_2(weigh, y, x, weight, weight == C(0) ? C(0) : x * weight)

extern "C" __global__ void add_activation(Walk<3> walk, const T* a, const T* b, T* y, int bound) {
    map(walk, [=](C& y, C a, C b) { y = bounded(a + b, bound); }, out(y), in(a), in(b));
}

extern "C" __global__ void scale(Walk<2> walk, const T* x, T* y, double alpha, double beta) {
    const C factor = C(alpha), offset = C(beta);
    map(walk, [=](C& y, C x) { y = factor * x + offset; }, out(y), in(x));
}

extern "C" __global__ void power(Walk<2> walk, const T* x, T* y, double exponent) {
    const C e = C(exponent);
    if (exponent == 2.0)
        map(walk, [](C& y, C x) { y = x * x; }, out(y), in(x));
    else if (exponent == 0.5)
        map(walk, [](C& y, C x) { y = sqrt(x); }, out(y), in(x));
    else if (exponent == -1.0)
        map(walk, [](C& y, C x) { y = C(1) / x; }, out(y), in(x));
    else
        map(walk, [=](C& y, C x) { y = pow(x, e); }, out(y), in(x));
}
