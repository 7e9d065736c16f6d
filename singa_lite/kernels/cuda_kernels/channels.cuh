// What batch normalization's kernels know of the channels of one thread. S: the type of gamma and all vectors like it.
#pragma once
#include "activated.cuh"
#include "moments.cuh"

// The same, as packs or one by one. All are loaded before the first is converted, which waits for it.
template <class L, int N, class... Vectors>
__device__ __forceinline__ void load_vectors_by(const Walk<N>& walk, const int64 (&at)[N], C (&held)[N][L::COUNT],
                                                Vectors... vectors) {
    Loaded<L, S> own[N];
    int n = 0;
    ((own[n].load(vectors + at[n], inner(walk, n)), ++n), ...);
#pragma unroll
    for (int m = 0; m < N; ++m)
#pragma unroll
        for (int j = 0; j < L::COUNT; ++j) held[m][j] = C(own[m][j]);
}

// The vectors' elements of one thread's channels.
template <class L, int N, class... Vectors>
__device__ inline void load_vectors(const Walk<N>& walk, int64 channel, C (&held)[N][L::COUNT], Vectors... vectors) {
    const int V = L::COUNT;
    int64 at[N];
    offsets(walk, (unsigned)channel, at);
    bool packs = V > 1;
#pragma unroll
    for (int n = 0; n < N; ++n) packs = packs && inner(walk, n) == 1;
    int n = 0;
    if (packs && are_aligned(in(vectors + at[n++])...))
        load_vectors_by<Lanes<V, (V > 1)>>(walk, at, held, vectors...);
    else
        load_vectors_by<Lanes<V, false>>(walk, at, held, vectors...);
}

// (x - mean) * gamma * inv_std + beta: one arithmetic for the result and, going back, for what was bounded.
template <class L> struct Normalized {
    C mean[L::COUNT], scale[L::COUNT], shift[L::COUNT];

    // vectors: mean, spread, gamma, beta; inverse: 1 over the deviation, of a spread.
    template <class Inverse>
    __device__ inline void load(const Walk<4>& vectors, int64 channel, const S* mean_of, const S* spread,
                                const S* gamma, const S* beta, Inverse inverse) {
        C held[4][L::COUNT];
        load_vectors<L>(vectors, channel, held, mean_of, spread, gamma, beta);
#pragma unroll
        for (int j = 0; j < L::COUNT; ++j) {
            mean[j] = held[0][j];
            scale[j] = held[2][j] * inverse(held[1][j]);
            shift[j] = held[3][j];
        }
    }
    __device__ inline C operator()(C x, int j) const { return fma(x - mean[j], scale[j], shift[j]); }
};
