// What batch normalization's kernels know of the channels of one thread. S: the type of gamma and all vectors like it.
#pragma once
#include "activated.cuh"
#include "moments.cuh"

// The vectors' elements of one thread's channels.
template <class L, int N, class... Vectors>
__device__ inline void load_vectors(const Walk<N>& walk, int64 channel, C (&held)[N][L::COUNT], Vectors... vectors) {
    typedef Lanes<L::COUNT, false> Scattered;
    int64 at[N];
    offsets(walk, (unsigned)channel, at);
    int n = 0;
    ((load<Scattered>(vectors + at[n], inner(walk, n), held[n]), ++n), ...);
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
