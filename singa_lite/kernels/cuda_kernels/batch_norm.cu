// Batch normalization, with a sum and an activation behind it. moments.cu makes the sums of the statistics.
#include "channels.cuh"

// Mean, inv_std and running statistics of each channel from its slabs. vectors: running_mean, running_var, mean,
// inv_std.
extern "C" __global__ void batch_statistics(Walk<4> vectors, const C* sums, const C* squares, const C* origin,
                                            unsigned slabs, int64 slab, int64 count, double momentum, double epsilon,
                                            S* running_mean, S* running_var, S* mean, S* inv_std) {
    const int64 channel = warp_index();
    if (channel >= vectors.count) return;
    const int64 first = channel * slabs;
    const Statistics batch =
        statistics_of_slabs(sums + first, squares + first, slabs, slab, count, origin[channel]);
    if (threadIdx.x % 32) return;
    int64 at[4];
    offsets(vectors, (unsigned)channel, at);
    const C kept = C(1 - momentum), unbiased = C(momentum * count / (count > 1 ? count - 1 : 1));
    running_mean[at[0]] = S(fma(C(running_mean[at[0]]), kept, C(momentum) * batch.mean));
    running_var[at[1]] = S(fma(C(running_var[at[1]]), kept, unbiased * batch.variance));
    mean[at[2]] = S(batch.mean);
    inv_std[at[3]] = S(C(1) / sqrt(batch.variance + C(epsilon)));
}

// y = bound(gamma * (x - mean) * inverse(spread) + beta [+ other]). plane: x, y, and other where there is one. vectors:
// mean, spread, gamma, beta.
template <class L, int N, class Inverse>
__device__ inline void normalize(const Plane<N>& plane, const Walk<4>& vectors, const T* x, const S* mean,
                                 const S* spread, const S* gamma, const S* beta, T* y, const T* other, int bound,
                                 Inverse inverse) {
    const int V = L::COUNT;
    const Part part = part_of(plane);
    if (!part.held) return;
    struct Kept {
        int64 at;
        Loaded<L, T> x, other;
    };
    Normalized<L> normalized;
    int64 base[N];
    normalized.load(vectors, part.kept, mean, spread, gamma, beta, inverse);
    offsets(plane.kept, (unsigned)part.kept, base);
    each_row<L, Kept>(
        part, plane.height,
        [&](int64 row, Kept& kept) {
            int64 at[N];
            locate<L>(plane.summed, row, base, at);
            kept.x.load(x + at[0], inner(plane.kept, 0));
            if constexpr (N > 2) kept.other.load(other + at[2], inner(plane.kept, 2));
            kept.at = at[1];
        },
        [&](const Kept& kept) {
            C v[V];
#pragma unroll
            for (int j = 0; j < V; ++j) {
                v[j] = normalized(C(kept.x.v[j]), j);
                if constexpr (N > 2) v[j] += C(kept.other.v[j]);
                v[j] = bounded(v[j], bound);
            }
            store<L>(y + kept.at, inner(plane.kept, 1), v);
        });
}

extern "C" __global__ void batch_normalize(Plane<2> plane, Walk<4> vectors, const T* x, const S* mean,
                                           const S* inv_std, const S* gamma, const S* beta, T* y, int bound) {
    by_lanes(plane, are_aligned(in(x), in(y)), [&](auto lanes) {
        normalize<decltype(lanes)>(
            plane, vectors, x, mean, inv_std, gamma, beta, y, nullptr, bound, [](C v) { return v; });
    });
}

extern "C" __global__ void batch_normalize_add(Plane<3> plane, Walk<4> vectors, const T* x, const S* mean,
                                               const S* inv_std, const S* gamma, const S* beta, T* y, const T* other,
                                               int bound) {
    by_lanes(plane, are_aligned(in(x), in(y), in(other)), [&](auto lanes) {
        normalize<decltype(lanes)>(
            plane, vectors, x, mean, inv_std, gamma, beta, y, other, bound, [](C v) { return v; });
    });
}

extern "C" __global__ void batch_inference(Plane<2> plane, Walk<4> vectors, const T* x, const S* running_mean,
                                           const S* running_var, const S* gamma, const S* beta, T* y,
                                           double epsilon) {
    const C e = C(epsilon);
    by_lanes(plane, are_aligned(in(x), in(y)), [&](auto lanes) {
        normalize<decltype(lanes)>(plane, vectors, x, running_mean, running_var, gamma, beta, y, nullptr, NONE,
                                   [=](C variance) { return C(1) / sqrt(variance + e); });
    });
}
