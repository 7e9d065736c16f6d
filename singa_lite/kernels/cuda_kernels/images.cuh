// Images (n, c, h, w) of any strides, windows that slide over them, and packs of channels.
#pragma once
#include "map.cuh"

// Extents and strides (in elements). Laid out as in images.py, like all structs of this file.
struct Images {
    int n, c, h, w;
    int64 step_n, step_c, step_h, step_w;
};

struct Window {
    int height, width, stride_h, stride_w, top, left, dilation_h, dilation_w;
};

// Division by one number that is known beforehand, of dividends below 2**31: Granlund and Montgomery 1994.
struct Divisor {
    unsigned magic, shift, by;

    __device__ inline unsigned split(unsigned i, unsigned& rest) const {
        const unsigned quotient = (__umulhi(i, magic) + i) >> shift;
        rest = i - quotient * by;
        return quotient;
    }
};

// Numbers one for each position of an image tensor, in the order in which neighbours are close in memory: channels
// innermost, `pack` of them at a time, or C order.
struct Positions {
    unsigned count, channels_inside, pack;
    Divisor inner, middle, outer;
};

struct Position {
    int n, c, h, w;
};

__device__ inline Position position_of(const Positions& positions, unsigned number) {
    unsigned inner, middle, outer;
    const unsigned lines = positions.middle.split(positions.inner.split(number, inner), middle);
    const unsigned n = positions.outer.split(lines, outer);
    if (positions.channels_inside) return {(int)n, (int)(inner * positions.pack), (int)outer, (int)middle};
    return {(int)n, (int)outer, (int)middle, (int)inner};
}

__device__ inline int64 offset(const Images& images, int n, int c, int h, int w) {
    return n * images.step_n + c * images.step_c + h * images.step_h + w * images.step_w;
}
__device__ inline int64 offset(const Images& images, const Position& at) {
    return offset(images, at.n, at.c, at.h, at.w);
}

template <typename V> __device__ inline bool is_aligned(const V* p) {
    return reinterpret_cast<uint64>(p) % alignof(Pack<V>) == 0;
}

// N channels in a row, 1 or VECTOR; whole: their addresses are multiples of a pack's size.
template <typename V, typename H, int N> __device__ inline void load(const V* p, bool whole, H (&v)[N]) {
    if constexpr (N == VECTOR) {
        if (whole) {
            const Pack<V> pack = *reinterpret_cast<const Pack<V>*>(p);
#pragma unroll
            for (int k = 0; k < N; ++k) v[k] = H(pack.v[k]);
            return;
        }
    }
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = H(p[k]);
}
template <typename V, typename H, int N> __device__ inline void store(V* p, bool whole, const H (&v)[N]) {
    if constexpr (N == VECTOR) {
        if (whole) {
            Pack<V> pack;
#pragma unroll
            for (int k = 0; k < N; ++k) pack.v[k] = V(v[k]);
            *reinterpret_cast<Pack<V>*>(p) = pack;
            return;
        }
    }
#pragma unroll
    for (int k = 0; k < N; ++k) p[k] = V(v[k]);
}

// Channels of a pack, 1 or VECTOR: body(Channels) for those of a launch.
template <int N> struct Channels {};
template <class Body> __device__ inline void by_channels(int pack, Body body) {
    if (pack == 1)
        body(Channels<1>());
    else
        body(Channels<VECTOR>());
}
