// Lines: the elements of a tensor along one axis, with all other indices fixed. The threads are laid out by softmax.py.
#pragma once
#include "map.cuh"
#include "reduce.cuh"

// Packs that a lane keeps of a short row; as in softmax.py.
#define PACKS (sizeof(T) == 2 ? 4 : 8)

// A lane's elements of a row that blockDim.x lanes share: a pack, or if they are a warp, packs that lie 32 packs apart.
// The same ones wherever the row starts.
struct Row {
    int length;
    C v[PACKS][VECTOR];

    // f(element, its index in the row); indices behind the end among them.
    template <class F> __device__ inline void each(F f) {
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
            if (k * 32 * VECTOR < length)
#pragma unroll
                for (int j = 0; j < VECTOR; ++j) f(v[k][j], index(k) + j);
    }
    // f(element, the other row's).
    template <class F> __device__ inline void with(const Row& other, F f) {
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
            if (k * 32 * VECTOR < length)
#pragma unroll
                for (int j = 0; j < VECTOR; ++j) f(v[k][j], other.v[k][j]);
    }
    // behind: what stands behind the end.
    __device__ inline void load(const T* row, C behind) {
        each([=](C& value, int) { value = behind; });
        if (in_packs(row)) {
#pragma unroll
            for (int k = 0; k < PACKS; ++k)
                if (index(k) < length) {
                    const Pack<T> pack = *reinterpret_cast<const Pack<T>*>(row + index(k));
#pragma unroll
                    for (int j = 0; j < VECTOR; ++j) v[k][j] = C(pack.v[j]);
                }
        } else {
            each([=](C& value, int i) {
                if (i < length) value = C(row[i]);
            });
        }
    }
    __device__ inline void store(T* row) {
        if (in_packs(row)) {
#pragma unroll
            for (int k = 0; k < PACKS; ++k)
                if (index(k) < length) {
                    Pack<T> pack;
#pragma unroll
                    for (int j = 0; j < VECTOR; ++j) pack.v[j] = T(v[k][j]);
                    *reinterpret_cast<Pack<T>*>(row + index(k)) = pack;
                }
        } else {
            each([=](C value, int i) {
                if (i < length) row[i] = T(value);
            });
        }
    }
    __device__ inline int index(int k) const { return (k * 32 + (int)threadIdx.x) * VECTOR; }
    __device__ inline bool in_packs(const T* row) const {
        return length % VECTOR == 0 && reinterpret_cast<uint64>(row) % alignof(Pack<T>) == 0;
    }
};

// f(offsets, exists) for line number `mine` of the `each` that a block has at a time, of N operands; so often for every
// thread of a block.
template <int N, class F> __device__ inline void each_line(const Walk<N>& lines, unsigned each, unsigned mine, F f) {
    int64 at[N];
    for (int64 first = (int64)blockIdx.x * each; first < lines.count; first += (int64)gridDim.x * each) {
        const bool exists = first + mine < lines.count;
        offsets(lines, (unsigned)(exists ? first + mine : first), at);
        f(at, exists);
    }
}

// f(elements...) along a row that a block has for itself. A thread's elements are the same wherever the row starts.
template <class F, class... Ops> __device__ inline void along_row(int length, F f, Ops... ops) {
    const int N = sizeof...(Ops);
    const bool packs = are_aligned(ops...), broadcast[N] = {};
    const int whole = length / VECTOR * VECTOR;
    int64 at[N];
    auto go_to = [&](int index) {
#pragma unroll
        for (int n = 0; n < N; ++n) at[n] = index;
    };
    for (int i = threadIdx.x * VECTOR; i < whole; i += blockDim.x * VECTOR) {
        if (packs) {
            go_to(i);
            at_pack(at, broadcast, f, ops...);
        } else {
#pragma unroll
            for (int k = 0; k < VECTOR; ++k) {
                go_to(i + k);
                at_one(at, f, ops...);
            }
        }
    }
    for (int i = whole + threadIdx.x; i < length; i += blockDim.x) {
        go_to(i);
        at_one(at, f, ops...);
    }
}

// Over the blockDim.y threads that share a column: columns lie side by side along threadIdx.x.
template <class F> __device__ inline C column_reduce(C value, F f) {
    __shared__ C parts[256];
    if (blockDim.y == 1) return value;
    __syncthreads(); // all have read the parts of the call before
    parts[threadIdx.y * blockDim.x + threadIdx.x] = value;
    __syncthreads();
    value = parts[threadIdx.x];
    for (unsigned y = 1; y < blockDim.y; ++y) value = f(value, parts[y * blockDim.x + threadIdx.x]);
    return value;
}
