// Convolutions as matrix products whose operands are never written out: how their elements are found.
#pragma once
#include "images.cuh"
#include "tile.cuh"

// weight: its filters as images. channels, filters: of one group. quads of x, y, weight: whether four
// channels lie in a row there, none of them in another group.
struct Convolution {
    Images x, y, weight;
    Window window;
    int channels, filters, x_quads, y_quads, weight_quads;
    // Pixels of y or, in the derivative by x, of x; and divisors by its columns and rows.
    int pixels;
    Divisor columns, rows;
    // Divisors by what is summed at one tap (channels; in the derivative by x, filters), and by the kernel's width.
    Divisor of_tap, across;
    Divisor stride_h, stride_w;
};

struct Pixel {
    int n, h, w;
};

__device__ inline Pixel pixel_of(const Convolution& s, int number) {
    unsigned h, w;
    const unsigned n = s.rows.split(s.columns.split(number, w), h);
    return {(int)n, (int)h, (int)w};
}

// A tap (i, j) of the window and a channel or filter c of the group, numbered (i, j, c).
struct Tap {
    int i, j, c;

    __device__ inline void step(const Convolution& s) {
        if (++c < (int)s.of_tap.by) return;
        c = 0;
        if (++j < (int)s.across.by) return;
        j = 0;
        ++i;
    }
};

__device__ inline Tap tap_of(const Convolution& s, int number) {
    unsigned j, c;
    const unsigned i = s.across.split(s.of_tap.split(number, c), j);
    return {(int)i, (int)j, (int)c};
}

__device__ inline int taps(const Convolution& s) { return s.window.height * s.window.width; }

__device__ inline void zero(C (&v)[QUAD]) {
#pragma unroll
    for (int q = 0; q < QUAD; ++q) v[q] = C(0);
}

// Four elements, those before `left`, `step` apart; whole: in a row and aligned.
__device__ inline void load_some(const T* p, int64 step, int left, bool whole, C (&v)[QUAD]) {
    if (whole && left > 0) return load_quad(p, v);
#pragma unroll
    for (int q = 0; q < QUAD; ++q) v[q] = q < left ? C(p[q * step]) : C(0);
}

// Numbers (i, j, c) from `number` on up to `end`, four: find(tap) is where such a one lies, or null.
template <class Find>
__device__ inline void load_taps(const Convolution& s, int number, int end, bool whole, Find find, C (&v)[QUAD]) {
    zero(v);
    if (number >= end) return;
    Tap tap = tap_of(s, number);
    if (whole) {
        if (const T* p = find(tap)) load_quad(p, v);
        return;
    }
#pragma unroll
    for (int q = 0; q < QUAD; ++q) {
        const T* p = number + q < end ? find(tap) : nullptr;
        if (p) v[q] = C(*p);
        tap.step(s);
    }
}

// Element (h, w) of an image, null where that lies in the padding.
__device__ inline const T* element(const T* image, const Images& images, int c, int h, int w) {
    const bool inside = (unsigned)h < (unsigned)images.h && (unsigned)w < (unsigned)images.w;
    return inside ? image + offset(images, 0, c, h, w) : nullptr;
}

// ---- operands: outer index x terms. All pointers are those of a group's first channel or filter.

// Pixels of y x (i, j, c) of x.
struct Patches {
    static const bool along_terms = true;
    struct At {
        const T* image;
        int h, w;
    };
    const Convolution& s;
    const T* x;
    bool whole;

    __device__ inline At at(int number) const {
        if (number >= s.pixels) return {nullptr, 0, 0};
        const Pixel pixel = pixel_of(s, number);
        const Window& window = s.window;
        return {x + pixel.n * s.x.step_n, pixel.h * window.stride_h - window.top,
                pixel.w * window.stride_w - window.left};
    }
    __device__ inline void load(const At& at, int term, C (&v)[QUAD]) const {
        auto find = [&](const Tap& tap) {
            return element(at.image, s.x, tap.c, at.h + tap.i * s.window.dilation_h, at.w + tap.j * s.window.dilation_w);
        };
        load_taps(s, term, at.image ? taps(s) * s.channels : 0, whole, find, v);
    }
};

// Filters x (i, j, c).
struct Filters {
    static const bool along_terms = true;
    typedef const T* At;
    const Convolution& s;
    const T* weight;
    bool whole;

    __device__ inline At at(int filter) const {
        return filter < s.filters ? weight + filter * s.weight.step_n : nullptr;
    }
    __device__ inline void load(const At& at, int term, C (&v)[QUAD]) const {
        auto find = [&](const Tap& tap) { return at + offset(s.weight, 0, tap.c, tap.i, tap.j); };
        load_taps(s, term, at ? taps(s) * s.channels : 0, whole, find, v);
    }
};

// Pixels of x x (i, j, filter): dy where a window's tap (i, j) meets the pixel.
struct Slopes {
    static const bool along_terms = true;
    struct At {
        const T* image;
        int h, w;
    };
    const Convolution& s;
    const T* dy;
    bool whole;

    __device__ inline At at(int number) const {
        if (number >= s.pixels) return {nullptr, 0, 0};
        const Pixel pixel = pixel_of(s, number);
        return {dy + pixel.n * s.y.step_n, pixel.h + s.window.top, pixel.w + s.window.left};
    }
    __device__ inline void load(const At& at, int term, C (&v)[QUAD]) const {
        auto find = [&](const Tap& tap) -> const T* {
            const int h = at.h - tap.i * s.window.dilation_h, w = at.w - tap.j * s.window.dilation_w;
            if (h < 0 || w < 0) return nullptr;
            unsigned beside_h, beside_w;
            const int row = s.stride_h.split(h, beside_h), column = s.stride_w.split(w, beside_w);
            return beside_h || beside_w ? nullptr : element(at.image, s.y, tap.c, row, column);
        };
        load_taps(s, term, at.image ? taps(s) * s.filters : 0, whole, find, v);
    }
};

// Channels x (i, j, filter).
struct TurnedFilters {
    static const bool along_terms = false;
    typedef int At;
    const Convolution& s;
    const T* weight;
    bool whole;

    __device__ inline At at(int channel) const { return channel; }
    __device__ inline void load(const At& at, int term, C (&v)[QUAD]) const {
        const Tap tap = tap_of(s, term);
        const int left = term < taps(s) * s.filters ? s.channels - at : 0;
        load_some(weight + offset(s.weight, tap.c, at, tap.i, tap.j), s.weight.step_c, left, whole, v);
    }
};

// Filters x pixels of y before `end`.
struct TurnedSlopes {
    static const bool along_terms = false;
    typedef int At;
    const Convolution& s;
    const T* dy;
    int end;
    bool whole;

    __device__ inline At at(int filter) const { return filter; }
    __device__ inline void load(const At& at, int term, C (&v)[QUAD]) const {
        const Pixel pixel = pixel_of(s, term);
        const int left = term < end ? s.filters - at : 0;
        load_some(dy + offset(s.y, pixel.n, at, pixel.h, pixel.w), s.y.step_c, left, whole, v);
    }
};

// (i, j, c) x pixels of y before `end`: x there.
struct TurnedPatches {
    static const bool along_terms = false;
    typedef int At;
    const Convolution& s;
    const T* x;
    int end;
    bool whole;

    __device__ inline At at(int number) const { return number; }
    __device__ inline void load(const At& at, int term, C (&v)[QUAD]) const {
        const Window& window = s.window;
        const Pixel pixel = pixel_of(s, term);
        const T* image = x + pixel.n * s.x.step_n;
        const int h = pixel.h * window.stride_h - window.top, w = pixel.w * window.stride_w - window.left;
        auto find = [&](const Tap& tap) {
            return element(image, s.x, tap.c, h + tap.i * window.dilation_h, w + tap.j * window.dilation_w);
        };
        load_taps(s, at, term < end ? taps(s) * s.channels : 0, whole, find, v);
    }
};
