// Sums along some axes of tensors of any strides, in two stages: a slab of the indices that are summed by each block,
// then the slabs. The order of a sum depends on extents and on the order of the axes in memory, never on strides.
#pragma once
#include "map.cuh"
#include "reduce.cuh"

// Threads of a block.
#define THREADS 256

// N tensors of one shape whose axes are `kept`, along which results vary, or `summed`. A block takes a tile of `width`
// threads' kept indices and a slab of the summed ones, `height` at a time. Laid out as in plane.py.
template <int N> struct Plane {
    Walk<N> kept, summed;
    int64 slab;             // summed indices of a block
    unsigned slabs, tiles;  // blocks along the summed and the kept axes
    unsigned width, height; // their product is THREADS
    unsigned kept_inner;    // threads side by side take kept indices side by side; otherwise summed ones
    unsigned vector;        // neighbouring kept indices of one thread: VECTOR or 1
    unsigned packs;         // they lie in a row, as packs if the pointers allow
    unsigned unused;
};

// One thread's part of a plane.
struct Part {
    unsigned slab, across, down;
    int64 kept;       // its first kept index
    int64 first, end; // of its summed indices, `height` apart; none if the kept index is beyond the last
    bool held;
};

template <int N> __device__ inline Part part_of(const Plane<N>& plane) {
    Part part;
    part.slab = blockIdx.x / plane.tiles;
    part.across = plane.kept_inner ? threadIdx.x % plane.width : threadIdx.x / plane.height;
    part.down = plane.kept_inner ? threadIdx.x / plane.width : threadIdx.x % plane.height;
    part.kept = ((int64)(blockIdx.x % plane.tiles) * plane.width + part.across) * plane.vector;
    part.held = part.kept < plane.kept.count;
    part.first = part.slab * plane.slab + part.down;
    part.end = part.held ? min(plane.summed.count, (part.slab + 1) * plane.slab) : 0;
    return part;
}

// How one thread takes elements. COUNT: neighbouring kept indices; FAST: packs, rows of one stride.
template <int N, bool F> struct Lanes {
    static const int COUNT = N;
    static const bool FAST = F;
};

// body(Lanes): packs where elements lie so. Every way sums in the same order.
template <class Body> __device__ __forceinline__ void by_lanes(bool vector, bool packs, Body body) {
    if (!vector)
        body(Lanes<1, false>());
    else if (packs)
        body(Lanes<VECTOR, true>());
    else
        body(Lanes<VECTOR, false>());
}
template <int N, class Body>
__device__ __forceinline__ void by_lanes(const Plane<N>& plane, bool aligned, Body body) {
    by_lanes(plane.vector > 1, aligned && plane.packs && plane.summed.axes == 1, body);
}

// Offsets of a summed index, from those of the kept index.
template <class L, int N>
__device__ __forceinline__ void locate(const Walk<N>& summed, int64 index, const int64 (&base)[N], int64 (&at)[N]) {
#pragma unroll
    for (int n = 0; n < N; ++n) at[n] = base[n];
    unsigned left = (unsigned)index;
    if (!L::FAST) {
#pragma unroll 1 // the code is long as it is
        for (int axis = (int)summed.axes - 1; axis > 0; --axis) {
            const unsigned above = left / summed.extents[axis], coordinate = left - above * summed.extents[axis];
            left = above;
#pragma unroll
            for (int n = 0; n < N; ++n) at[n] += coordinate * summed.strides[n][axis];
        }
    }
#pragma unroll
    for (int n = 0; n < N; ++n) at[n] += left * summed.strides[n][0];
}

// Strides between the kept indices of one thread.
template <int N> __device__ inline int64 inner(const Walk<N>& kept, int n) { return kept.strides[n][kept.axes - 1]; }

// The elements of one thread's kept indices; step 0: one for all.
template <class L, typename E> __device__ __forceinline__ void load(const E* p, int64 step, C (&v)[L::COUNT]) {
    if (L::COUNT > 1 && step == 0) {
        const C one = C(*p);
#pragma unroll
        for (int j = 0; j < L::COUNT; ++j) v[j] = one;
    } else if constexpr (L::FAST) {
        const Pack<E> pack = *reinterpret_cast<const Pack<E>*>(p);
#pragma unroll
        for (int j = 0; j < L::COUNT; ++j) v[j] = C(pack.v[j]);
    } else {
#pragma unroll
        for (int j = 0; j < L::COUNT; ++j) v[j] = C(p[j * step]);
    }
}

template <class L, typename E> __device__ __forceinline__ void store(E* p, int64 step, const C (&v)[L::COUNT]) {
    if constexpr (L::FAST) {
        Pack<E> pack;
#pragma unroll
        for (int j = 0; j < L::COUNT; ++j) pack.v[j] = E(v[j]);
        *reinterpret_cast<Pack<E>*>(p) = pack;
    } else {
#pragma unroll
        for (int j = 0; j < L::COUNT; ++j) p[j * step] = E(v[j]);
    }
}

// The elements of one thread's kept indices as they lie in memory: of halves that is half the registers of numbers in C.
template <class L, typename E> struct alignas(L::FAST ? alignof(Pack<E>) : alignof(E)) Loaded {
    E v[L::COUNT];

    __device__ __forceinline__ E operator[](int j) const { return v[j]; }

    // step 0: one for all.
    __device__ __forceinline__ void load(const E* p, int64 step) {
        if (L::COUNT > 1 && step == 0) {
            const E one = *p;
#pragma unroll
            for (int j = 0; j < L::COUNT; ++j) v[j] = one;
        } else if constexpr (L::FAST) {
            *reinterpret_cast<Pack<E>*>(v) = *reinterpret_cast<const Pack<E>*>(p);
        } else {
#pragma unroll
            for (int j = 0; j < L::COUNT; ++j) v[j] = p[j * step];
        }
    }
};

// read(index, kept) for each of the thread's summed indices, then write(kept), which may store. If they are fast, four
// are read before the first is written: a load behind a store would wait for it, as it may read what was stored, and one
// behind a conversion waits for what is converted. Kept: what is held of an index in between, as it lies in memory.
template <class L, class Kept, class Read, class Write>
__device__ __forceinline__ void each_row(const Part& part, int64 step, Read read, Write write) {
    int64 index = part.first;
    if constexpr (L::FAST) {
        const int AT_ONCE = 4;
        for (; index + (AT_ONCE - 1) * step < part.end; index += AT_ONCE * step) {
            Kept kept[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; ++k) read(index + k * step, kept[k]);
#pragma unroll
            for (int k = 0; k < AT_ONCE; ++k) write(kept[k]);
        }
    }
#pragma unroll 1
    for (; index < part.end; index += step) {
        Kept kept;
        read(index, kept);
        write(kept);
    }
}

// take(offsets, an element of a, one of b, which kept index) for each of the thread's elements. plane: a, b, and perhaps
// more.
template <class L, int N, class Take>
__device__ __forceinline__ void each_pair(const Plane<N>& plane, const Part& part, const T* a, const T* b, Take take) {
    struct Kept {
        int64 at[N];
        Loaded<L, T> a, b;
    };
    int64 base[N];
    offsets(plane.kept, (unsigned)part.kept, base);
    each_row<L, Kept>(
        part, plane.height,
        [&](int64 row, Kept& kept) {
            locate<L>(plane.summed, row, base, kept.at);
            kept.a.load(a + kept.at[0], inner(plane.kept, 0));
            kept.b.load(b + kept.at[1], inner(plane.kept, 1));
        },
        [&](const Kept& kept) {
#pragma unroll
            for (int j = 0; j < L::COUNT; ++j) take(kept.at, C(kept.a[j]), C(kept.b[j]), j);
        });
}

// From a thread to the one below it. With a place for each thread in this order, a warp's lanes use different banks.
template <int N> __device__ inline unsigned to_next_down(const Plane<N>& plane) {
    return plane.kept_inner ? plane.width : 1;
}

// The sum over a block's threads that stand below each other, in the uppermost; memory: THREADS for each value.
template <int N, int V, typename A>
__device__ inline void sum_down(const Plane<N>& plane, const Part& part, A (&own)[V], A* memory) {
    const unsigned slot = threadIdx.x, below = to_next_down(plane);
    for (unsigned half = plane.height / 2; half > 0; half /= 2) {
#pragma unroll
        for (int j = 0; j < V; ++j) memory[j * THREADS + slot] = own[j];
        __syncthreads();
        if (part.down < half) {
#pragma unroll
            for (int j = 0; j < V; ++j) own[j] += memory[j * THREADS + slot + half * below];
        }
        __syncthreads();
    }
}

// The thread's kept indices' partial results of this slab: partial[kept index][slab].
template <int N, int V, typename A>
__device__ inline void keep_partial(const Plane<N>& plane, const Part& part, const A (&own)[V], A* partial) {
    if (!part.held || part.down) return;
#pragma unroll
    for (int j = 0; j < V; ++j) partial[(part.kept + j) * plane.slabs + part.slab] = own[j];
}

// Partial sums of a number of each index. plane: a, b, and perhaps more. add(offsets, elements of a and b, sum).
template <class L, int N, typename A, class Add>
__device__ __forceinline__ void sum_of_slab(const Plane<N>& plane, const T* a, const T* b, A* sums, A* memory, Add add) {
    const Part part = part_of(plane);
    A sum[L::COUNT] = {};
    if (part.held)
        each_pair<L>(plane, part, a, b, [&](const int64(&at)[N], C u, C v, int j) { add(at, u, v, sum[j]); });
    sum_down(plane, part, sum, memory);
    keep_partial(plane, part, sum, sums);
}

// Partial sums of two numbers of each index. plane: a, b, and perhaps more. begin(first kept index) has what adds an
// index's numbers: add(offsets, elements of a and b, which kept index, sum, product).
template <class L, int N, class Begin>
__device__ __forceinline__ void two_sums_of_slab(const Plane<N>& plane, const T* a, const T* b, C* sums, C* products,
                                                 C* memory, Begin begin) {
    const int V = L::COUNT;
    const Part part = part_of(plane);
    C sum[V] = {}, product[V] = {};
    if (part.held) {
        const auto add = begin(part.kept);
        each_pair<L>(plane, part, a, b, [&](const int64(&at)[N], C u, C v, int j) {
            add(at, u, v, j, sum[j], product[j]);
        });
    }
    sum_down(plane, part, sum, memory);
    sum_down(plane, part, product, memory);
    keep_partial(plane, part, sum, sums);
    keep_partial(plane, part, product, products);
}

// ---- the second stage: one warp for each kept index

__device__ inline int64 warp_index() { return ((int64)blockIdx.x * blockDim.x + threadIdx.x) / 32; }

// One warp for each row.
#define LANES 32
#define LANE (threadIdx.x % LANES)
#define EACH_ROW(row) for (int64 row = warp_index(); row < rows; row += (int64)gridDim.x * (THREADS / LANES))

// The sum of of(slab, partial[slab]) over the slabs, in all lanes; a lane loads eight before it adds the first.
template <typename A, class Of> __device__ inline A sum_of_slabs(const A* partial, unsigned slabs, Of of) {
    const int AT_ONCE = 8;
    A total = 0;
    for (unsigned first = threadIdx.x % 32; first < slabs; first += 32 * AT_ONCE) {
        A held[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) held[k] = partial[min(first + 32 * k, slabs - 1)];
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k)
            if (first + 32 * k < slabs) total += of(first + 32 * k, held[k]);
    }
    return warp_sum(total);
}
template <typename A> __device__ inline A sum_of_slabs(const A* partial, unsigned slabs) {
    return sum_of_slabs(partial, slabs, [](unsigned, A own) { return own; });
}
