// Scores with classes along one axis, position by position, as positions.py lays them out. T: the scores' type, S: the
// target's, L: that of the results.
#pragma once
#include "map.cuh"
#include "reduce.cuh"

// A position's classes: how many, and how far apart in each operand, in elements; 0 where it has one element for all.
template <int N> struct Classes {
    int64 count;
    int64 steps[N];
};

// A team's position (see reduce.cuh): where its operands' first classes are. Without one, `count` is 0.
template <int N> struct Position {
    int64 at[N];
    int64 count;
    bool inside;

    __device__ inline Position(const Walk<N>& walk, const Classes<N>& classes) {
        const int64 number = (int64)blockIdx.x * blockDim.y + threadIdx.y;
        inside = number < walk.count;
        count = inside ? classes.count : 0;
        offsets(walk, inside ? (unsigned)number : 0u, at);
    }
    // A class id, -1 if it names no class. A launch cannot raise: such an id makes NaN of its position's results.
    __device__ inline int64 id(S target) const {
        const int64 given = (int64)(typename Held<S>::type)target;
        return given >= 0 && given < count ? given : -1;
    }
};

__device__ inline C nan() { return infinity() - infinity(); }
