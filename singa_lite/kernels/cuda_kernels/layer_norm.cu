// Layer normalization of rows that one warp each can take, and gradients. S: the type of gamma and all vectors like it.
#include "moments.cuh"

// Features that a lane takes of a row at a time, in packs of V.
const int AT_ONCE = Taken<1>::COUNT;

// chunk(first feature, packs) for the chunks of a lane; packs: how many of its AT_ONCE / V lie within the row.
template <int V, class Chunk> __device__ __forceinline__ void each_chunk(int64 features, Chunk chunk) {
    for (int64 first = (threadIdx.x % 32) * V; first < features; first += 32 * AT_ONCE) {
        const int packs = (int)min((int64)(AT_ONCE / V), (features - first + 32 * V - 1) / (32 * V));
        chunk(first, packs);
    }
}

// rows: x, y, mean, inv_std. features: x, y, gamma, beta.
template <class L>
__device__ __forceinline__ void normalize_rows(const Walk<4>& rows, const Walk<4>& features, const T* x,
                                               const S* gamma, const S* beta, T* y, S* mean, S* inv_std, C epsilon) {
    const int V = L::COUNT;
    for (int64 row = warp_index(); row < rows.count; row += gridDim.x * (THREADS / 32)) {
        int64 start[4];
        offsets(rows, (unsigned)row, start);
        const int64 base[4] = {start[0], start[1], 0, 0};
        C from[1];
        origins<Lanes<1, false>>(features, base, x, 0, from);
        Moments<1> own;
        clear(own);
        each_chunk<V>(features.count, [&](int64 first, int packs) {
            C values[AT_ONCE][1];
#pragma unroll
            for (int k = 0; k < AT_ONCE / V; ++k) {
                if (k >= packs) continue;
                int64 at[4];
                C v[V];
                locate<L>(features, first + 32 * V * k, base, at);
                load<L>(x + at[0], inner(features, 0), v);
#pragma unroll
                for (int j = 0; j < V; ++j) values[k * V + j][0] = v[j];
            }
            take(own, values, packs * V, from);
        });
        merge_lanes(own);
        const C average = from[0] + own.sum[0] / own.count;
        const C inverse = C(1) / sqrt(own.squares[0] / own.count + epsilon);
        for (int64 i = (threadIdx.x % 32) * V; i < features.count; i += 32 * V) {
            int64 at[4];
            C v[V], slope[V], shift[V];
            locate<L>(features, i, base, at);
            load<L>(x + at[0], inner(features, 0), v);
            load<L>(gamma + at[2], inner(features, 2), slope);
            load<L>(beta + at[3], inner(features, 3), shift);
#pragma unroll
            for (int j = 0; j < V; ++j) v[j] = fma((v[j] - average) * inverse, slope[j], shift[j]);
            store<L>(y + at[1], inner(features, 1), v);
        }
        if (threadIdx.x % 32) continue;
        mean[start[2]] = S(average);
        inv_std[start[3]] = S(inverse);
    }
}

extern "C" __global__ void layer_rows(Walk<4> rows, Walk<4> features, unsigned vector, unsigned packs, const T* x,
                                      const S* gamma, const S* beta, T* y, S* mean, S* inv_std, double epsilon) {
    const bool fast = packs && are_aligned(in(x), in(gamma), in(beta), in(y));
    by_lanes(vector, fast, [&](auto lanes) {
        normalize_rows<decltype(lanes)>(rows, features, x, gamma, beta, y, mean, inv_std, C(epsilon));
    });
}

// rows: dy, x, dx, mean, inv_std. features: dy, x, dx, gamma.
template <class L>
__device__ __forceinline__ void propagate_rows(const Walk<5>& rows, const Walk<4>& features, const T* dy, const T* x,
                                               const S* gamma, const S* mean, const S* inv_std, T* dx) {
    const int V = L::COUNT;
    const C share = C(1) / C(features.count);
    for (int64 row = warp_index(); row < rows.count; row += gridDim.x * (THREADS / 32)) {
        int64 start[5];
        offsets(rows, (unsigned)row, start);
        const int64 base[4] = {start[0], start[1], start[2], 0};
        const C average = C(mean[start[3]]), inverse = C(inv_std[start[4]]);
        // g = dy * gamma and x - mean, of a lane's features from i on; where dx belongs.
        auto terms = [&](int64 i, C(&g)[V], C(&off)[V]) {
            int64 at[4];
            C slope[V];
            locate<L>(features, i, base, at);
            load<L>(dy + at[0], inner(features, 0), g);
            load<L>(x + at[1], inner(features, 1), off);
            load<L>(gamma + at[3], inner(features, 3), slope);
#pragma unroll
            for (int j = 0; j < V; ++j) {
                g[j] = rounded_product(g[j], slope[j]); // in a sum it would be another number, and a row of one not 0
                off[j] -= average;
            }
            return at[2];
        };
        C sum = 0, product = 0;
        for (int64 i = (threadIdx.x % 32) * V; i < features.count; i += 32 * V) {
            C g[V], off[V];
            terms(i, g, off);
#pragma unroll
            for (int j = 0; j < V; ++j) {
                sum += g[j];
                product = fma(g[j], off[j], product);
            }
        }
        const C offset = warp_sum(sum) * share, along = warp_sum(product) * share * inverse * inverse;
        for (int64 i = (threadIdx.x % 32) * V; i < features.count; i += 32 * V) {
            C g[V], off[V];
            const int64 at = terms(i, g, off);
#pragma unroll
            for (int j = 0; j < V; ++j) g[j] = inverse * fma(-off[j], along, g[j] - offset);
            store<L>(dx + at, inner(features, 2), g);
        }
    }
}

extern "C" __global__ void layer_rows_derivative(Walk<5> rows, Walk<4> features, unsigned vector, unsigned packs,
                                                 const T* dy, const T* x, const S* gamma, const S* mean,
                                                 const S* inv_std, T* dx) {
    const bool fast = packs && are_aligned(in(dy), in(x), in(gamma), in(dx));
    by_lanes(vector, fast, [&](auto lanes) {
        propagate_rows<decltype(lanes)>(rows, features, dy, x, gamma, mean, inv_std, dx);
    });
}

// Partial sums over rows of dy and of dy * xhat. plane: dy, x, mean, inv_std.
extern "C" __global__ void layer_slab_gradients(Plane<4> plane, const T* dy, const T* x, const S* mean,
                                                const S* inv_std, C* sums, C* products) {
    __shared__ C memory[VECTOR * THREADS];
    auto add = [=](const int64(&at)[4], C dy, C x, int, C& sum, C& product) {
        sum += dy;
        product = fma(dy, (x - C(mean[at[2]])) * C(inv_std[at[3]]), product);
    };
    by_lanes(plane, are_aligned(in(dy), in(x)), [&](auto lanes) {
        two_sums_of_slab<decltype(lanes)>(plane, dy, x, sums, products, memory, [=](int64) { return add; });
    });
}

// vectors: dy of one row, dgamma, dbeta.
extern "C" __global__ void layer_gradients(Walk<3> vectors, const C* sums, const C* products, unsigned slabs,
                                           S* dgamma, S* dbeta) {
    const int64 feature = warp_index();
    if (feature >= vectors.count) return;
    const C sum = sum_of_slabs(sums + feature * slabs, slabs);
    const C product = sum_of_slabs(products + feature * slabs, slabs);
    if (threadIdx.x % 32) return;
    int64 at[3];
    offsets(vectors, (unsigned)feature, at);
    dgamma[at[1]] = S(product);
    dbeta[at[2]] = S(sum);
}
