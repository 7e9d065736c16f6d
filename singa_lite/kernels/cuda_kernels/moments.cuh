// Sum and sum of squared deviations from the mean, merged by the rule of Chan, Golub and LeVeque (1979).
//
// Values are taken relative to one of them, so that numbers far from 0 keep their differences.
#pragma once
#include "plane.cuh"

template <int V> struct Moments {
    C count, sum[V], squares[V];
};

template <int V> __device__ inline void clear(Moments<V>& m) {
    m.count = 0;
#pragma unroll
    for (int j = 0; j < V; ++j) m.sum[j] = m.squares[j] = 0;
}

template <int V> __device__ inline void merge(Moments<V>& a, const Moments<V>& b) {
    if (b.count == 0) return;
    if (a.count == 0) {
        a = b;
        return;
    }
    const C for_a = C(1) / a.count, for_b = C(1) / b.count, both = a.count + b.count;
    const C weight = a.count * b.count / both;
#pragma unroll
    for (int j = 0; j < V; ++j) {
        const C apart = fma(-a.sum[j], for_a, b.sum[j] * for_b);
        a.squares[j] = fma(apart * apart, weight, a.squares[j] + b.squares[j]);
        a.sum[j] += b.sum[j];
    }
    a.count = both;
}

// What the values of lines are taken relative to: the median of three of them, so that a stray one does no harm.
template <class L, int N>
__device__ inline void origins(const Walk<N>& summed, const int64 (&base)[N], const T* x, int64 step,
                               C (&from)[L::COUNT]) {
    const int64 samples[3] = {0, summed.count / 2, summed.count - 1};
    Loaded<L, T> v[3];
#pragma unroll
    for (int n = 0; n < 3; ++n) {
        int64 at[N];
        locate<L>(summed, samples[n], base, at);
        v[n].load(x + at[0], step);
    }
#pragma unroll
    for (int j = 0; j < L::COUNT; ++j) {
        const C least = min(C(v[0][j]), C(v[1][j])), most = max(C(v[0][j]), C(v[1][j]));
        const C median = max(least, min(most, C(v[2][j])));
        from[j] = median - median == 0 ? median : C(0); // one that is not finite would spoil the others
    }
}

// Values that a thread takes before it merges them: enough loads at a time, and one division for all of them.
template <int V> struct Taken {
    static const int COUNT = V > 4 ? 32 / V : 8;
};

// Merge `count` values of each of V lines; those behind are left out.
template <int V, class Values>
__device__ __forceinline__ void take(Moments<V>& all, const Values (&values)[Taken<V>::COUNT], int count,
                                     const C (&from)[V]) {
    Moments<V> some;
    clear(some);
    some.count = C(count);
    const C share = C(1) / some.count;
#pragma unroll
    for (int k = 0; k < Taken<V>::COUNT; ++k) {
        if (k >= count) continue;
#pragma unroll
        for (int j = 0; j < V; ++j) some.sum[j] += C(values[k][j]) - from[j];
    }
#pragma unroll
    for (int k = 0; k < Taken<V>::COUNT; ++k) {
        if (k >= count) continue;
#pragma unroll
        for (int j = 0; j < V; ++j) {
            const C off = fma(-some.sum[j], share, C(values[k][j]) - from[j]);
            some.squares[j] = fma(off, off, some.squares[j]);
        }
    }
    merge(all, some);
}

// Of the lines that a block's threads which stand below each other took, in the uppermost.
// memory: THREADS for each value, 2 * V + 1 of them.
template <int N, int V>
__device__ inline void merge_down(const Plane<N>& plane, const Part& part, Moments<V>& own, C* memory) {
    const unsigned slot = threadIdx.x, below = to_next_down(plane);
    for (unsigned half = plane.height / 2; half > 0; half /= 2) {
        memory[2 * V * THREADS + slot] = own.count;
#pragma unroll
        for (int j = 0; j < V; ++j) {
            memory[j * THREADS + slot] = own.sum[j];
            memory[(V + j) * THREADS + slot] = own.squares[j];
        }
        __syncthreads();
        if (part.down < half) {
            Moments<V> other;
            other.count = memory[2 * V * THREADS + slot + half * below];
#pragma unroll
            for (int j = 0; j < V; ++j) {
                other.sum[j] = memory[j * THREADS + slot + half * below];
                other.squares[j] = memory[(V + j) * THREADS + slot + half * below];
            }
            merge(own, other);
        }
        __syncthreads();
    }
}

// Of the lines that a warp's lanes took, in all of them.
__device__ inline void merge_lanes(Moments<1>& own) {
#pragma unroll
    for (int by = 16; by > 0; by /= 2) {
        Moments<1> other;
        other.count = __shfl_xor_sync(0xffffffffu, own.count, by);
        other.sum[0] = __shfl_xor_sync(0xffffffffu, own.sum[0], by);
        other.squares[0] = __shfl_xor_sync(0xffffffffu, own.squares[0], by);
        merge(own, other);
    }
}

// Mean and variance of a line from its slabs' sums and squares, in all lanes of a warp. from: as in `origins`.
struct Statistics {
    C mean, variance;
};
__device__ inline Statistics
statistics_of_slabs(const C* sums, const C* squares, unsigned slabs, int64 slab, int64 count, C from) {
    const C mean = sum_of_slabs(sums, slabs) / C(count);
    const C apart = sum_of_slabs(sums, slabs, [=](unsigned s, C sum) {
        const C own = C(min(slab, count - s * slab)), off = sum / own - mean;
        return own * off * off;
    });
    return {from + mean, (sum_of_slabs(squares, slabs) + apart) / C(count)};
}
