// What pooling takes of a window: sums, and maxima with the numbers of the winning taps.
#pragma once
#include "images.cuh"

// index: of the winners, extents and strides; that of y where there is none.
struct Pooling {
    Images x, y, index;
    Window window;
    Positions positions;
    int count_pad;
};

// The part of a window that lies in x: taps [first, first + rows) x [begin, begin + columns).
struct Clipped {
    int first, rows, begin, columns;
};

__device__ inline Clipped clipped(const Pooling& p, int row, int column) {
    const int h = row * p.window.stride_h - p.window.top, w = column * p.window.stride_w - p.window.left;
    const int first = max(0, -h), begin = max(0, -w);
    return {first, min(p.window.height, p.x.h - h) - first, begin, min(p.window.width, p.x.w - w) - begin};
}

__device__ inline int count(const Pooling& p, const Clipped& part) {
    return p.count_pad ? p.window.height * p.window.width : part.rows * part.columns;
}

template <int N> struct Sum {
    C v[N];

    __device__ inline void clear() {
#pragma unroll
        for (int k = 0; k < N; ++k) v[k] = C(0);
    }
    __device__ inline void take(const C (&x)[N], int) {
#pragma unroll
        for (int k = 0; k < N; ++k) v[k] += x[k];
    }
    __device__ inline void merge(const Sum& other) { take(other.v, 0); }
    __device__ inline void put(const Pooling& p, const Position& at, const Clipped& part, T* y, I*, bool whole) const {
        const C by = C(count(p, part));
        C mean[N];
#pragma unroll
        for (int k = 0; k < N; ++k) mean[k] = v[k] / by;
        store(y + offset(p.y, at), whole, mean);
    }
};

// NaN wins over all else.
__device__ inline bool beats(C a, C b) { return a > b || (is_nan(a) && !is_nan(b)); }

// tap: number of the winner, -1 before there is one.
template <int N> struct Maximum {
    C v[N];
    int tap[N];

    __device__ inline void clear() {
#pragma unroll
        for (int k = 0; k < N; ++k) v[k] = C(0), tap[k] = -1;
    }
    __device__ inline void take(const C (&x)[N], int from) {
#pragma unroll
        for (int k = 0; k < N; ++k)
            if (tap[k] < 0 || beats(x[k], v[k])) v[k] = x[k], tap[k] = from;
    }
    // The other one's taps are not all behind these.
    __device__ inline void merge(const Maximum& other) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
            if (other.tap[k] < 0) continue;
            const bool first = other.tap[k] < tap[k] && !beats(v[k], other.v[k]);
            if (tap[k] < 0 || first || beats(other.v[k], v[k])) v[k] = other.v[k], tap[k] = other.tap[k];
        }
    }
    __device__ inline void put(const Pooling& p, const Position& at, const Clipped&, T* y, I* index, bool whole) const {
        store(y + offset(p.y, at), whole, v);
        if (index) store(index + offset(p.index, at), whole, tap);
    }
};

// Takes each `lanes`-th tap of a window, row by row, from tap `lane` on.
template <int N, class Result>
__device__ inline void gather(const Pooling& p, const Position& at, const Clipped& part, const T* x, bool whole,
                              int lane, int lanes, Result& result) {
    const int h = at.h * p.window.stride_h - p.window.top, w = at.w * p.window.stride_w - p.window.left;
    const T* source = x + offset(p.x, at.n, at.c, h + part.first, w + part.begin);
    const int down = lanes / part.columns, along = lanes % part.columns;
    int i = lane / part.columns, j = lane % part.columns;
#pragma unroll 4
    while (i < part.rows) {
        C v[N];
        load(source + i * p.x.step_h + j * p.x.step_w, whole, v);
        result.take(v, (part.first + i) * p.window.width + part.begin + j);
        i += down;
        j += along;
        if (j >= part.columns) j -= part.columns, ++i;
    }
}
