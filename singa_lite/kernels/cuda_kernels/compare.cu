// Comparisons: 1 or 0, or of bool. S: the type of what is compared.
#include "map.cuh"

extern "C" __global__ void equal(Walk<3> walk, const S* a, const S* b, T* y) {
    map(walk, [](auto& y, auto a, auto b) { y = a == b; }, out(y), in(a), in(b));
}

extern "C" __global__ void not_equal(Walk<3> walk, const S* a, const S* b, T* y) {
    map(walk, [](auto& y, auto a, auto b) { y = a != b; }, out(y), in(a), in(b));
}

extern "C" __global__ void less(Walk<3> walk, const S* a, const S* b, T* y) {
    map(walk, [](auto& y, auto a, auto b) { y = a < b; }, out(y), in(a), in(b));
}

extern "C" __global__ void less_equal(Walk<3> walk, const S* a, const S* b, T* y) {
    map(walk, [](auto& y, auto a, auto b) { y = a <= b; }, out(y), in(a), in(b));
}
