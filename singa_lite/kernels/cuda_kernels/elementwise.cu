// Arithmetic element by element; operands broadcast by strides of 0.
#include "bounded.cuh"
#include "map.cuh"

extern "C" __global__ void add(Walk<3> walk, const T* a, const T* b, T* y) {
    map(walk, [](C& y, C a, C b) { y = a + b; }, out(y), in(a), in(b));
}

extern "C" __global__ void add_activation(Walk<3> walk, const T* a, const T* b, T* y, int bound) {
    map(walk, [=](C& y, C a, C b) { y = bounded(a + b, bound); }, out(y), in(a), in(b));
}

extern "C" __global__ void subtract(Walk<3> walk, const T* a, const T* b, T* y) {
    map(walk, [](C& y, C a, C b) { y = a - b; }, out(y), in(a), in(b));
}

extern "C" __global__ void multiply(Walk<3> walk, const T* a, const T* b, T* y) {
    map(walk, [](C& y, C a, C b) { y = a * b; }, out(y), in(a), in(b));
}

extern "C" __global__ void divide(Walk<3> walk, const T* a, const T* b, T* y) {
    map(walk, [](C& y, C a, C b) { y = a / b; }, out(y), in(a), in(b));
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

extern "C" __global__ void exponential(Walk<2> walk, const T* x, T* y) {
    map(walk, [](C& y, C x) { y = exp(x); }, out(y), in(x));
}

extern "C" __global__ void logarithm(Walk<2> walk, const T* x, T* y) {
    map(walk, [](C& y, C x) { y = log(x); }, out(y), in(x));
}
