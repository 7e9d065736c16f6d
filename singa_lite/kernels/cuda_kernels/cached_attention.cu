// Attention of some rows over kept keys, as many of which are there as a position says. A block does a row of one head. It goes
// over the keys by tiles: a thread for each score, then threads for each feature of y.
#include "reduce.cuh"

// Threads of a block, and keys of a tile; as in cached_attention.py.
#define KEYS 128
// Features of a head at most; as there.
#define FEATURES 1024

// Steps of (n, m or length, heads, size), the last one of features, in elements.
struct Steps {
    int64 of[4];
};

// width: threads that share the features of a key; the keys of a tile are divided among KEYS / width groups of them.
struct Extents {
    int64 rows, heads, share, length, size, width;
    int64 mask_steps[2], first_steps[2];
    double scale;
};

extern "C" __global__ void cached_attention(
    const T* q, const T* keys, const T* values, const M* mask, const F* first, const int64* position, T* y, Extents e,
    Steps q_steps, Steps key_steps, Steps value_steps, Steps y_steps) {
    __shared__ C powers[KEYS], sums[FEATURES]; // of each group and feature, which one thread adds to
    const int64 head = blockIdx.x % e.heads, row = blockIdx.x / e.heads % e.rows, n = blockIdx.x / e.heads / e.rows;
    auto at = [=](const Steps& steps, int64 place, int64 which) {
        return n * steps.of[0] + place * steps.of[1] + which * steps.of[2];
    };
    const T* query = q + at(q_steps, row, head);
    const int64 feature = threadIdx.x % e.width, group = threadIdx.x / e.width, groups = KEYS / e.width;
    for (int64 i = threadIdx.x; i < groups * e.size; i += KEYS) sums[i] = C(0);
    const bool inside = *position >= 0 && *position + e.rows <= e.length;
    const int64 end = inside ? *position + row + 1 : 0;
    const int64 wanted = first ? int64(first[n * e.first_steps[0] + row * e.first_steps[1]]) : 0;
    C top = -infinity(), total = C(0);
    for (int64 begin = wanted > 0 ? wanted : 0; begin < end; begin += KEYS) {
        const int64 key = begin + threadIdx.x, count = end - begin < KEYS ? end - begin : KEYS;
        bool sees = key < end;
        if (sees && mask) sees = C(mask[n * e.mask_steps[0] + key * e.mask_steps[1]]) != C(0);
        C score = sees ? C(0) : -infinity();
        if (sees) {
            const T* of_key = keys + at(key_steps, key, head / e.share);
            for (int64 i = 0; i < e.size; ++i) score += C(query[i * q_steps.of[3]]) * C(of_key[i * key_steps.of[3]]);
            score *= C(e.scale);
        }
        const C largest = block_max(Largest<C>()(top, score)); // all have read the powers of the tile before
        const C shrink = top == largest ? C(1) : exp(top - largest), power = sees ? exp(score - largest) : C(0);
        powers[threadIdx.x] = power;
        total = total * shrink + power;
        top = largest;
        __syncthreads();
        for (int64 i = feature; i < e.size; i += e.width) {
            C sum = sums[group * e.size + i] * shrink;
            for (int64 k = group; k < count; k += groups)
                if (powers[k] != C(0))
                    sum += powers[k] * C(values[at(value_steps, begin + k, head / e.share) + i * value_steps.of[3]]);
            sums[group * e.size + i] = sum;
        }
    }
    total = block_sum(total); // all have written their sums by then
    for (int64 i = threadIdx.x; i < e.size; i += KEYS) {
        C made = C(0);
        for (int64 g = 0; g < groups; ++g) made += sums[g * e.size + i];
        if (!inside) made = infinity() - infinity(); // NaN, as no kernel can raise an error
        y[at(y_steps, row, head) + i * y_steps.of[3]] = T(inside && top == -infinity() ? C(0) : made / total);
    }
}
