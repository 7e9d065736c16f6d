// 1 where an integer is not a value. S: the integers' type.
#include "map.cuh"

extern "C" __global__ void differs(Walk<2> walk, const S* x, T* y, int64 value) {
    map(walk, [=](C& y, S x) { y = C((int64)x != value); }, out(y), in(x));
}
