// Comparisons: 1 or 0, or of bool. S: the type of what is compared.
#include "map.cuh"

#define COMPARE(name, relation)                                                             \
    extern "C" __global__ void name(Walk<3> walk, const S* a, const S* b, T* y) {           \
        map(walk, [](auto& y, auto a, auto b) { y = a relation b; }, out(y), in(a), in(b)); \
    }

COMPARE(equal, ==)
COMPARE(not_equal, !=)
COMPARE(less, <)
COMPARE(less_equal, <=)

// Of an integer and a value.
extern "C" __global__ void differs(Walk<2> walk, const S* x, T* y, int64 value) {
    map(walk, [=](auto& y, auto x) { y = (int64)x != value; }, out(y), in(x));
}
