// Copies between any strides and types, and one value everywhere. S: x's type, T: y's.
#include "map.cuh"

extern "C" __global__ void copy(Walk<2> walk, const S* x, T* y) {
    map(walk, [](auto& y, auto x) { y = static_cast<typename Held<T>::type>(x); }, out(y), in(x));
}

extern "C" __global__ void fill(const __grid_constant__ Walk<1> walk, T* y, T value) {
    const Held<T>::type wanted = value;
    map(walk, [=](auto& y) { y = wanted; }, out(y));
}
