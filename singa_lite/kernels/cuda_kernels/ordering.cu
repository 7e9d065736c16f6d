// What is larger: extremes of two, bounds, and the choice by a mask. NaN stays NaN, as every comparison with it is false.
// S: the type of a mask.
#include "map.cuh"

MAP_1(absolute, y, x, fabs(x))
MAP_2(absolute_derivative, dx, dy, x, dy * C((x > C(0)) - (x < C(0))))
MAP_2(maximum, y, a, b, a > b || is_nan(a) ? a : b)
MAP_2(minimum, y, a, b, a < b || is_nan(a) ? a : b)

extern "C" __global__ void clip(Walk<2> walk, const T* x, T* y, double low, double high) {
    const C least = C(low), most = C(high);
    map(walk, [=](C& y, C x) { y = x < least ? least : x > most ? most : x; }, out(y), in(x));
}

extern "C" __global__ void clip_derivative(Walk<3> walk, const T* dy, const T* x, T* dx, double low, double high) {
    const C least = C(low), most = C(high);
    map(walk, [=](C& dx, C dy, C x) { dx = x >= least && x <= most ? dy : C(0); }, out(dx), in(dy), in(x));
}

extern "C" __global__ void maximum_derivative(Walk<4> walk, const T* dy, const T* a, const T* b, T* da) {
    map(walk, [](C& da, C dy, C a, C b) { da = a < b ? C(0) : a == b ? dy * C(0.5) : dy; },
        out(da), in(dy), in(a), in(b));
}

extern "C" __global__ void where(Walk<4> walk, const S* condition, const T* a, const T* b, T* y) {
    map(walk, [](C& y, S condition, C a, C b) { y = condition ? a : b; }, out(y), in(condition), in(a), in(b));
}
