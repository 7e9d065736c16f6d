// Batch normalization going back, with the activation that stood behind it, and with a sum of derivatives.
#include "channels.cuh"

// Derivatives as they are.
struct Unbound {
    template <class X> __device__ inline C operator()(C dy, const X&, int) const { return dy; }
};

// Derivatives, 0 where the bound that stood behind the normalization passed nothing. What went into it is worked out
// again from x, rounded as it was stored.
template <class L> struct Masked {
    Normalized<L> normalized;
    int bound;

    __device__ inline C operator()(C dy, C x, int j) const {
        return passes(C(T(normalized(x, j))), bound) ? dy : C(0);
    }
};

// Partial sums of g and of g * (x - mean), g = masked dy. plane: dy, x; stride: of mean. mask(first channel): what has
// g(dy, x, which channel).
template <class L, class Mask>
__device__ __forceinline__ void gradients_of_slab(const Plane<2>& plane, const T* dy, const T* x, const S* mean,
                                                  int64 stride, C* sums, C* products, C* memory, Mask mask) {
    C average[L::COUNT];
    two_sums_of_slab<L>(plane, dy, x, sums, products, memory, [&](int64 channel) {
        load<Lanes<L::COUNT, false>>(mean + channel * stride, stride, average);
        const auto g = mask(channel);
        return [=, &average](const int64(&)[2], C dy, C x, int j, C& sum, C& product) {
            const C own = g(dy, x, j);
            sum += own;
            product = fma(own, x - average[j], product);
        };
    });
}

extern "C" __global__ void batch_slab_gradients(Plane<2> plane, const T* dy, const T* x, const S* mean, int64 stride,
                                                C* sums, C* products) {
    __shared__ C memory[VECTOR * THREADS];
    by_lanes(plane, are_aligned(in(dy), in(x)), [&](auto lanes) {
        gradients_of_slab<decltype(lanes)>(
            plane, dy, x, mean, stride, sums, products, memory, [](int64) { return Unbound(); });
    });
}

// masking: mean, inv_std, gamma, beta.
extern "C" __global__ void batch_slab_masked(Plane<2> plane, Walk<4> masking, const T* dy, const T* x, const S* mean,
                                             const S* inv_std, const S* gamma, const S* beta, int bound, int64 stride,
                                             C* sums, C* products) {
    __shared__ C memory[VECTOR * THREADS];
    by_lanes(plane, are_aligned(in(dy), in(x)), [&](auto lanes) {
        typedef decltype(lanes) L;
        gradients_of_slab<L>(plane, dy, x, mean, stride, sums, products, memory, [&](int64 channel) {
            Masked<L> mask;
            mask.bound = bound;
            mask.normalized.load(masking, channel, mean, inv_std, gamma, beta, [](C v) { return v; });
            return mask;
        });
    });
}

// vectors: inv_std, dgamma, dbeta.
extern "C" __global__ void batch_gradients(Walk<3> vectors, const C* sums, const C* products, unsigned slabs,
                                           const S* inv_std, S* dgamma, S* dbeta) {
    const int64 channel = warp_index();
    if (channel >= vectors.count) return;
    const C sum = sum_of_slabs(sums + channel * slabs, slabs);
    const C product = sum_of_slabs(products + channel * slabs, slabs);
    if (threadIdx.x % 32) return;
    int64 at[3];
    offsets(vectors, (unsigned)channel, at);
    dgamma[at[1]] = S(product * C(inv_std[at[0]]));
    dbeta[at[2]] = S(sum);
}

// dx = gamma * inv_std * (g - dbeta / m - (x - mean) * inv_std * dgamma / m) [+ other]. plane: dy, x, dx, and other
// where there is one. mask: as above.
template <class L, int N, class Mask>
__device__ inline void propagate(const Plane<N>& plane, const Walk<5>& vectors, const T* dy, const T* x, const S* mean,
                                 const S* inv_std, const S* gamma, const S* dgamma, const S* dbeta, T* dx,
                                 const T* other, Mask mask) {
    const int V = L::COUNT;
    const Part part = part_of(plane);
    if (!part.held) return;
    struct Kept {
        int64 at;
        Loaded<L, T> dy, x, other;
    };
    const auto g = mask(part.kept);
    const C share = C(1) / C(plane.summed.count);
    C held[5][V], offset[V], slope[V], scale[V];
    int64 base[N];
    load_vectors<L>(vectors, part.kept, held, mean, inv_std, gamma, dgamma, dbeta);
    offsets(plane.kept, (unsigned)part.kept, base);
#pragma unroll
    for (int j = 0; j < V; ++j) {
        offset[j] = held[4][j] * share;
        slope[j] = held[1][j] * held[3][j] * share;
        scale[j] = held[2][j] * held[1][j];
    }
    each_row<L, Kept>(
        part, plane.height,
        [&](int64 row, Kept& kept) {
            int64 at[N];
            locate<L>(plane.summed, row, base, at);
            kept.dy.load(dy + at[0], inner(plane.kept, 0));
            kept.x.load(x + at[1], inner(plane.kept, 1));
            if constexpr (N > 3) kept.other.load(other + at[3], inner(plane.kept, 3));
            kept.at = at[2];
        },
        [&](const Kept& kept) {
            C v[V];
#pragma unroll
            for (int j = 0; j < V; ++j) {
                const C own = C(kept.x.v[j]);
                v[j] = fma(held[0][j] - own, slope[j], g(C(kept.dy.v[j]), own, j) - offset[j]);
                v[j] = rounded_product(scale[j], v[j]); // in a sum it would be another number
                if constexpr (N > 3) v[j] = C(T(v[j])) + C(kept.other.v[j]);
            }
            store<L>(dx + kept.at, inner(plane.kept, 2), v);
        });
}

extern "C" __global__ void batch_derivative(Plane<3> plane, Walk<5> vectors, const T* dy, const T* x, const S* mean,
                                            const S* inv_std, const S* gamma, const S* dgamma, const S* dbeta, T* dx) {
    by_lanes(plane, are_aligned(in(dy), in(x), in(dx)), [&](auto lanes) {
        propagate<decltype(lanes)>(plane, vectors, dy, x, mean, inv_std, gamma, dgamma, dbeta, dx, nullptr,
                                   [](int64) { return Unbound(); });
    });
}

extern "C" __global__ void batch_derivative_add(Plane<4> plane, Walk<5> vectors, const T* dy, const T* x,
                                                const S* mean, const S* inv_std, const S* gamma, const S* dgamma,
                                                const S* dbeta, T* dx, const T* other) {
    by_lanes(plane, are_aligned(in(dy), in(x), in(dx), in(other)), [&](auto lanes) {
        propagate<decltype(lanes)>(plane, vectors, dy, x, mean, inv_std, gamma, dgamma, dbeta, dx, other,
                                   [](int64) { return Unbound(); });
    });
}

// masking: mean, inv_std, gamma, beta. Two blocks share a multiprocessor, for which a thread
// may have 128 registers; in bfloat16 a compiler took 136.
extern "C" __global__ void __launch_bounds__(256, 2) batch_derivative_masked(
    Plane<3> plane, Walk<5> vectors, const T* dy, const T* x, const S* mean, const S* inv_std, const S* gamma,
    const S* dgamma, const S* dbeta, T* dx, Walk<4> masking, const S* beta, int bound) {
    by_lanes(plane, are_aligned(in(dy), in(x), in(dx)), [&](auto lanes) {
        typedef decltype(lanes) L;
        propagate<L>(plane, vectors, dy, x, mean, inv_std, gamma, dgamma, dbeta, dx, nullptr, [&](int64 channel) {
            Masked<L> mask;
            mask.bound = bound;
            mask.normalized.load(masking, channel, mean, inv_std, gamma, beta, [](C v) { return v; });
            return mask;
        });
    });
}
