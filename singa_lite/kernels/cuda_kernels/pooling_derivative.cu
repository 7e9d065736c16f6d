// Derivatives of pooling: each element of dx visits the windows over it, in order, so that nothing is written twice.
#include "pooling.cuh"

// Numbers [first, end) of the windows along one axis that hold position `at`.
struct Range {
    int first, end;
};

__device__ inline Range windows_over(int at, int pad, int extent, int stride, int outputs) {
    const int last = at + pad, before = last - extent;
    return {before < 0 ? 0 : before / stride + 1, min(last / stride + 1, outputs)};
}

// y, index: of dy; x: of dx. add(slope, n, c, row, column, tap): what the window there gives.
template <int N, class F> __device__ void spread(const Pooling& p, T* dx, bool whole, F add) {
    const Window& window = p.window;
    EACH(unsigned, i, p.positions.count) {
        const Position at = position_of(p.positions, i);
        const Range rows = windows_over(at.h, window.top, window.height, window.stride_h, p.y.h);
        const Range columns = windows_over(at.w, window.left, window.width, window.stride_w, p.y.w);
        C slope[N] = {};
        for (int row = rows.first; row < rows.end; ++row)
            for (int column = columns.first; column < columns.end; ++column) {
                const int h = at.h + window.top - row * window.stride_h;
                const int w = at.w + window.left - column * window.stride_w;
                add(slope, Position{at.n, at.c, row, column}, h * window.width + w);
            }
        store(dx + offset(p.x, at), whole, slope);
    }
}

template <int N> __device__ void max_derivative(Channels<N>, const Pooling& p, const T* dy, const I* index, T* dx) {
    const bool whole = is_aligned(dy) && is_aligned(index) && is_aligned(dx);
    spread<N>(p, dx, whole, [&](C (&slope)[N], const Position& from, int tap) {
        int winner[N];
        load(index + offset(p.index, from), whole, winner);
        C v[N];
        load(dy + offset(p.y, from), whole, v);
#pragma unroll
        for (int k = 0; k < N; ++k)
            if (winner[k] == tap) slope[k] += v[k];
    });
}

template <int N> __device__ void avg_derivative(Channels<N>, const Pooling& p, const T* dy, T* dx) {
    const bool whole = is_aligned(dy) && is_aligned(dx);
    spread<N>(p, dx, whole, [&](C (&slope)[N], const Position& from, int) {
        const C by = C(count(p, clipped(p, from.h, from.w)));
        C v[N];
        load(dy + offset(p.y, from), whole, v);
#pragma unroll
        for (int k = 0; k < N; ++k) slope[k] += v[k] / by;
    });
}

extern "C" __global__ void max_pool2d_derivative(Pooling p, const T* dy, const I* index, T* dx) {
    by_channels(p.positions.pack, [&](auto n) { max_derivative(n, p, dy, index, dx); });
}

extern "C" __global__ void avg_pool2d_derivative(Pooling p, const T* dy, T* dx) {
    by_channels(p.positions.pack, [&](auto n) { avg_derivative(n, p, dy, dx); });
}
