// Where the terms of sums lie, as reduction.py lays it out.
#pragma once
#include "map.cuh"

// Sums over the reduced axes of x, one for each element of the kept axes. Strides count elements. The reduced terms
// are cut into chunks of `chunk` terms, gridDim.y of them, whose sums are stored one behind the other.
struct Sums {
    unsigned kept, reduced, chunk, packs; // packs: VECTOR neighbours lie in a row, and are aligned if x is
    unsigned kept_axes, reduced_axes;
    unsigned kept_extents[AXES], reduced_extents[AXES];
    int64 kept_in_x[AXES], kept_in_y[AXES], reduced_in_x[AXES];
};

__device__ inline int64 offset(unsigned index, unsigned axes, const unsigned* extents, const int64* strides) {
    int64 at = 0;
    for (int axis = (int)axes - 1; axis > 0; --axis) {
        at += index % extents[axis] * strides[axis];
        index /= extents[axis];
    }
    return at + index * strides[0];
}
__device__ inline int64 of_kept(const Sums& s, unsigned index) {
    return offset(index, s.kept_axes, s.kept_extents, s.kept_in_x);
}
__device__ inline int64 of_reduced(const Sums& s, unsigned index) {
    return offset(index, s.reduced_axes, s.reduced_extents, s.reduced_in_x);
}
__device__ inline int64 of_result(const Sums& s, unsigned index) {
    return offset(index, s.kept_axes, s.kept_extents, s.kept_in_y) + blockIdx.y;
}
__device__ inline bool in_packs(const Sums& s, const T* x) {
    return s.packs && reinterpret_cast<uint64>(x) % alignof(Pack<T>) == 0;
}
