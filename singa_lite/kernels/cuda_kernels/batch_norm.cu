// Batch normalization. S: the type of gamma and all vectors like it. moments.cu makes the sums of the forward pass.
#include "moments.cuh"

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

// The vectors' elements of one thread's channels.
template <class L, int N, class... Vectors>
__device__ inline void load_vectors(const Walk<N>& walk, int64 channel, C (&held)[N][L::COUNT], Vectors... vectors) {
    typedef Lanes<L::COUNT, false> Scattered;
    int64 at[N];
    offsets(walk, (unsigned)channel, at);
    int n = 0;
    ((load<Scattered>(vectors + at[n], inner(walk, n), held[n]), ++n), ...);
}

// y = gamma * (x - mean) * inverse(spread) + beta. vectors: mean, spread, gamma, beta.
template <class L, class Inverse>
__device__ inline void normalize(const Plane<2>& plane, const Walk<4>& vectors, const T* x, const S* mean,
                                 const S* spread, const S* gamma, const S* beta, T* y, Inverse inverse) {
    const int V = L::COUNT;
    const Part part = part_of(plane);
    if (!part.held) return;
    C held[4][V], scale[V];
    int64 base[2];
    load_vectors<L>(vectors, part.kept, held, mean, spread, gamma, beta);
    offsets(plane.kept, (unsigned)part.kept, base);
#pragma unroll
    for (int j = 0; j < V; ++j) scale[j] = held[2][j] * inverse(held[1][j]);
    each_row<L>(part, plane.height, [&](int64 row) {
        int64 at[2];
        C v[V];
        locate<L>(plane.summed, row, base, at);
        load<L>(x + at[0], inner(plane.kept, 0), v);
#pragma unroll
        for (int j = 0; j < V; ++j) v[j] = fma(v[j] - held[0][j], scale[j], held[3][j]);
        store<L>(y + at[1], inner(plane.kept, 1), v);
    });
}

extern "C" __global__ void batch_normalize(Plane<2> plane, Walk<4> vectors, const T* x, const S* mean,
                                           const S* inv_std, const S* gamma, const S* beta, T* y) {
    by_lanes(plane, are_aligned(in(x), in(y)), [&](auto lanes) {
        normalize<decltype(lanes)>(plane, vectors, x, mean, inv_std, gamma, beta, y, [](C v) { return v; });
    });
}

extern "C" __global__ void batch_inference(Plane<2> plane, Walk<4> vectors, const T* x, const S* running_mean,
                                           const S* running_var, const S* gamma, const S* beta, T* y,
                                           double epsilon) {
    const C e = C(epsilon);
    by_lanes(plane, are_aligned(in(x), in(y)), [&](auto lanes) {
        normalize<decltype(lanes)>(plane, vectors, x, running_mean, running_var, gamma, beta, y,
                                   [=](C variance) { return C(1) / sqrt(variance + e); });
    });
}

// Partial sums of dy and of dy * (x - mean). plane: dy, x; stride: of mean.
template <class L>
__device__ __forceinline__ void gradients_of_slab(const Plane<2>& plane, const T* dy, const T* x, const S* mean,
                                                  int64 stride, C* sums, C* products, C* memory) {
    const int V = L::COUNT;
    const Part part = part_of(plane);
    C sum[V] = {}, product[V] = {};
    if (part.held) {
        C average[V];
        int64 base[2];
        offsets(plane.kept, (unsigned)part.kept, base);
        load<Lanes<V, false>>(mean + part.kept * stride, stride, average);
        each_row<L>(part, plane.height, [&](int64 row) {
            int64 at[2];
            C g[V], v[V];
            locate<L>(plane.summed, row, base, at);
            load<L>(dy + at[0], inner(plane.kept, 0), g);
            load<L>(x + at[1], inner(plane.kept, 1), v);
#pragma unroll
            for (int j = 0; j < V; ++j) {
                sum[j] += g[j];
                product[j] = fma(g[j], v[j] - average[j], product[j]);
            }
        });
    }
    sum_down(plane, part, sum, memory);
    sum_down(plane, part, product, memory);
    keep_partial(plane, part, sum, sums);
    keep_partial(plane, part, product, products);
}

extern "C" __global__ void batch_slab_gradients(Plane<2> plane, const T* dy, const T* x, const S* mean,
                                                int64 stride, C* sums, C* products) {
    __shared__ C memory[VECTOR * THREADS];
    by_lanes(plane, are_aligned(in(dy), in(x)), [&](auto lanes) {
        gradients_of_slab<decltype(lanes)>(plane, dy, x, mean, stride, sums, products, memory);
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

// dx = gamma * inv_std * (dy - dbeta / m - (x - mean) * inv_std * dgamma / m). plane: dy, x, dx.
template <class L>
__device__ void propagate(const Plane<3>& plane, const Walk<5>& vectors, const T* dy, const T* x, const S* mean,
                          const S* inv_std, const S* gamma, const S* dgamma, const S* dbeta, T* dx) {
    const int V = L::COUNT;
    const Part part = part_of(plane);
    if (!part.held) return;
    const C share = C(1) / C(plane.summed.count);
    C held[5][V], offset[V], slope[V], scale[V];
    int64 base[3];
    load_vectors<L>(vectors, part.kept, held, mean, inv_std, gamma, dgamma, dbeta);
    offsets(plane.kept, (unsigned)part.kept, base);
#pragma unroll
    for (int j = 0; j < V; ++j) {
        offset[j] = held[4][j] * share;
        slope[j] = held[1][j] * held[3][j] * share;
        scale[j] = held[2][j] * held[1][j];
    }
    each_row<L>(part, plane.height, [&](int64 row) {
        int64 at[3];
        C g[V], v[V];
        locate<L>(plane.summed, row, base, at);
        load<L>(dy + at[0], inner(plane.kept, 0), g);
        load<L>(x + at[1], inner(plane.kept, 1), v);
#pragma unroll
        for (int j = 0; j < V; ++j) g[j] = scale[j] * fma(held[0][j] - v[j], slope[j], g[j] - offset[j]);
        store<L>(dx + at[2], inner(plane.kept, 2), g);
    });
}

extern "C" __global__ void batch_derivative(Plane<3> plane, Walk<5> vectors, const T* dy, const T* x, const S* mean,
                                            const S* inv_std, const S* gamma, const S* dgamma, const S* dbeta, T* dx) {
    by_lanes(plane, are_aligned(in(dy), in(x), in(dx)), [&](auto lanes) {
        propagate<decltype(lanes)>(plane, vectors, dy, x, mean, inv_std, gamma, dgamma, dbeta, dx);
    });
}
