// Copies between any strides and types. S: x's type, T: y's.
#include "map.cuh"

extern "C" __global__ void copy(Walk<2> walk, const S* x, T* y) {
    map(walk, [](auto& y, auto x) { y = static_cast<typename Held<T>::type>(x); }, out(y), in(x));
}
