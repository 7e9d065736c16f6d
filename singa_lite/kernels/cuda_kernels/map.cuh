// Element by element over tensors of any strides: `map(walk, functor, in(a), both(b), out(y))`.
#pragma once
#include "numbers.cuh"

// Most axes of a walk after those that lie alike are merged; as in walk.py.
#define AXES 6
// Elements that one thread takes at a time where they lie in a row: 16 bytes of T.
#define VECTOR (16 / (int)sizeof(T))

enum Mode { FLAT = 0, ROWS = 1, ANY = 2 };

// Where N operands of one shape have their elements. Strides count elements; 0 broadcasts. Laid out as in walk.py.
// Kernels that take a Walk<1> take it as a __grid_constant__: a compiler else copies that one onto each thread's stack.
template <int N> struct Walk {
    int64 count;
    unsigned mode, axes;
    unsigned extents[AXES];
    int64 strides[N][AXES];
};

template <typename V> struct In {
    typedef V type;
    const V* p;
    static const bool reads = true, writes = false;
};
template <typename V> struct Out {
    typedef V type;
    V* p;
    static const bool reads = false, writes = true;
};
template <typename V> struct Both {
    typedef V type;
    V* p;
    static const bool reads = true, writes = true;
};
template <typename V> __device__ inline In<V> in(const V* p) { return {p}; }
template <typename V> __device__ inline Out<V> out(V* p) { return {p}; }
template <typename V> __device__ inline Both<V> both(V* p) { return {p}; }

// VECTOR elements in a row, loaded and stored in pieces of at most 16 bytes.
template <typename V> struct alignas(VECTOR * sizeof(V) < 16 ? VECTOR * sizeof(V) : 16) Pack {
    V v[VECTOR];
};

// One thread's elements of one operand.
template <class Op> struct Elements {
    typedef typename Op::type V;
    typedef typename Held<V>::type H;
    H v[VECTOR];

    // stride 1: a pack; 0: one element for all of them.
    __device__ inline void load(const Op& op, int64 at, bool broadcast) {
        if (!Op::reads) return;
        if (broadcast) {
            const H one = H(op.p[at]);
#pragma unroll
            for (int k = 0; k < VECTOR; ++k) v[k] = one;
        } else {
            const Pack<V> pack = *reinterpret_cast<const Pack<V>*>(op.p + at);
#pragma unroll
            for (int k = 0; k < VECTOR; ++k) v[k] = H(pack.v[k]);
        }
    }
    __device__ inline void store(const Op& op, int64 at) {
        if constexpr (Op::writes) {
            Pack<V> pack;
#pragma unroll
            for (int k = 0; k < VECTOR; ++k) pack.v[k] = V(v[k]);
            *reinterpret_cast<Pack<V>*>(op.p + at) = pack;
        }
    }
    __device__ inline void load_one(const Op& op, int64 at) {
        if (Op::reads) v[0] = H(op.p[at]);
    }
    __device__ inline void store_one(const Op& op, int64 at) {
        if constexpr (Op::writes) op.p[at] = V(v[0]);
    }
};

// Offsets of element `index` in each operand.
template <int N> __device__ inline void offsets(const Walk<N>& walk, unsigned index, int64 (&at)[N]) {
#pragma unroll
    for (int n = 0; n < N; ++n) at[n] = 0;
    for (int axis = (int)walk.axes - 1; axis >= 0; --axis) {
        const unsigned coordinate = axis ? index % walk.extents[axis] : index;
        index /= walk.extents[axis];
#pragma unroll
        for (int n = 0; n < N; ++n) at[n] += coordinate * walk.strides[n][axis];
    }
}

// The same where all operands may lie in one row, of which there may be 2**32 elements and more.
template <int N> __device__ inline void far_offsets(const Walk<N>& walk, int64 index, int64 (&at)[N]) {
    if (walk.axes > 1) return offsets(walk, (unsigned)index, at);
#pragma unroll
    for (int n = 0; n < N; ++n) at[n] = index * walk.strides[n][0];
}

template <int N, class F, class... Ops> __device__ inline void at_one(const int64 (&at)[N], F& f, Ops... ops) {
    int n = 0, m = 0;
    auto apply = [&](Elements<Ops>... held) {
        (held.load_one(ops, at[n++]), ...);
        f(held.v[0]...);
        (held.store_one(ops, at[m++]), ...);
    };
    apply(Elements<Ops>()...);
}

// broadcast[n]: operand n has one element for the whole pack.
template <int N, class F, class... Ops>
__device__ inline void at_pack(const int64 (&at)[N], const bool (&broadcast)[N], F& f, Ops... ops) {
    int n = 0, m = 0;
    auto apply = [&](Elements<Ops>... held) {
        ((held.load(ops, at[n], broadcast[n]), ++n), ...);
#pragma unroll
        for (int k = 0; k < VECTOR; ++k) f(held.v[k]...);
        (held.store(ops, at[m++]), ...);
    };
    apply(Elements<Ops>()...);
}

template <class... Ops> __device__ inline bool are_aligned(Ops... ops) {
    uint64 bits = 0;
    ((bits |= (reinterpret_cast<uint64>(ops.p) % alignof(Pack<typename Ops::type>))), ...);
    return bits == 0;
}

// Over operands that lie in a row, or have one element for all: `whole` packs, then what is left of `count` elements.
// first, step: the thread's first pack, or element, and how far it is from one to the next.
template <int N, class F, class... Ops>
__device__ inline void map_flat(
    int64 count, int64 whole, int64 first, int64 step, const bool (&broadcast)[N], F& f, Ops... ops) {
    int64 at[N];
    for (int64 i = first; i < whole; i += step) {
#pragma unroll
        for (int n = 0; n < N; ++n) at[n] = broadcast[n] ? 0 : i * VECTOR;
        at_pack(at, broadcast, f, ops...);
    }
    for (int64 i = whole * VECTOR + first; i < count; i += step) {
#pragma unroll
        for (int n = 0; n < N; ++n) at[n] = broadcast[n] ? 0 : i;
        at_one(at, f, ops...);
    }
}

// f(a, b, y): every operand by reference, in the order given; f writes those that are out() or both(). Operands that
// share bytes must have the same strides: a thread reads its elements before it writes them.
template <class F, class... Ops> __device__ void map(const Walk<(int)sizeof...(Ops)>& walk, F f, Ops... ops) {
    const int N = sizeof...(Ops);
    const int64 first = (int64)blockIdx.x * blockDim.x + threadIdx.x, step = (int64)gridDim.x * blockDim.x;
    int64 at[N];
    bool broadcast[N];
#pragma unroll
    for (int n = 0; n < N; ++n) broadcast[n] = walk.strides[n][walk.axes - 1] == 0;
    const bool packs = walk.mode != ANY && are_aligned(ops...);
    if (packs && walk.mode == FLAT) {
        map_flat(walk.count, walk.count / VECTOR, first, step, broadcast, f, ops...);
    } else if (packs) {
        for (int64 i = first; i < walk.count / VECTOR; i += step) {
            offsets(walk, (unsigned)(i * VECTOR), at);
            at_pack(at, broadcast, f, ops...);
        }
    } else {
        for (int64 i = first; i < walk.count; i += step) {
            far_offsets(walk, i, at);
            at_one(at, f, ops...);
        }
    }
}

// Kernels that are one operation: MAP_1(name, y, x, y of x), MAP_2(name, y, a, b, y of a and b).
#define MAP_1(name, y, x, ...)                                                    \
    extern "C" __global__ void name(Walk<2> walk, const T* x, T* y) {             \
        map(walk, [](C& y, C x) { y = __VA_ARGS__; }, out(y), in(x));             \
    }
#define MAP_2(name, y, a, b, ...)                                                 \
    extern "C" __global__ void name(Walk<3> walk, const T* a, const T* b, T* y) { \
        map(walk, [](C& y, C a, C b) { y = __VA_ARGS__; }, out(y), in(a), in(b)); \
    }
// The same with a setting, a number.
#define MAP_1_BY(name, y, x, number, ...)                                                        \
    extern "C" __global__ void name(Walk<2> walk, const T* x, T* y, double given) {              \
        const C number = C(given);                                                               \
        map(walk, [=](C& y, C x) { y = __VA_ARGS__; }, out(y), in(x));                           \
    }
#define MAP_2_BY(name, y, a, b, number, ...)                                                     \
    extern "C" __global__ void name(Walk<3> walk, const T* a, const T* b, T* y, double given) {  \
        const C number = C(given);                                                               \
        map(walk, [=](C& y, C a, C b) { y = __VA_ARGS__; }, out(y), in(a), in(b));               \
    }
