// A bias, broadcast by strides of 0. T: type of what it is added to, S: its own.
#include "map.cuh"

extern "C" __global__ void add_bias(Walk<3> walk, const T* x, const S* bias, T* y) {
    map(walk, [](C& y, C x, C bias) { y = x + bias; }, out(y), in(x), in(bias));
}
