// Convolutions whose groups have one channel each. Forward and the derivative by x: a thread for each pack of channels at
// one position. weight: (kh, kw, k) in C order, so that packs of filters lie in a row. The gradient by the filters, in two
// stages: sums of splits of the positions, then of these.
#include "activated.cuh"
#include "images.cuh"

// As in routine.py.
#define THREADS 256
// Taps that a thread sums at a time in a gradient, as in depthwise.py: so few that no register spills.
#define TAPS (VECTOR == 8 ? 5 : 9)

// multiplier: filters of a channel. positions: of what the threads of a kernel write.
struct Depthwise {
    Images x, y;
    Window window;
    Positions positions;
    int multiplier;
    Divisor stride_h, stride_w;
};

template <int N>
__device__ void depthwise(Channels<N>, const Depthwise& s, const T* x, const T* weight, const T* bias, int64 bias_step, T* y,
                          int bound) {
    const bool whole = is_aligned(x) && is_aligned(weight) && is_aligned(y);
    const Window& window = s.window;
    EACH(unsigned, number, s.positions.count) {
        const Position at = position_of(s.positions, number);
        const int top = at.h * window.stride_h - window.top, left = at.w * window.stride_w - window.left;
        const int channel = s.multiplier == 1 ? at.c : at.c / s.multiplier;
        C sum[N] = {};
        for (int i = 0; i < window.height; ++i) {
            const int h = top + i * window.dilation_h;
            if ((unsigned)h >= (unsigned)s.x.h) continue;
            for (int j = 0; j < window.width; ++j) {
                const int w = left + j * window.dilation_w;
                if ((unsigned)w >= (unsigned)s.x.w) continue;
                C v[N], by[N];
                load(x + offset(s.x, at.n, channel, h, w), whole, v);
                load(weight + (int64)(i * window.width + j) * s.y.c + at.c, whole, by);
#pragma unroll
                for (int k = 0; k < N; ++k) sum[k] += v[k] * by[k];
            }
        }
#pragma unroll
        for (int k = 0; k < N; ++k) {
            if (bias) sum[k] += C(bias[(at.c + k) * bias_step]);
            sum[k] = bounded(sum[k], bound);
        }
        store(y + offset(s.y, at), whole, sum);
    }
}

template <int N>
__device__ void derivative(Channels<N>, const Depthwise& s, const T* dy, const T* weight, T* dx) {
    const bool whole = is_aligned(dy) && is_aligned(weight) && is_aligned(dx);
    const Window& window = s.window;
    EACH(unsigned, number, s.positions.count) {
        const Position at = position_of(s.positions, number);
        C sum[N] = {};
        unsigned beside;
        for (int i = 0; i < window.height; ++i) {
            const int h = at.h + window.top - i * window.dilation_h;
            const int row = h < 0 ? s.y.h : s.stride_h.split(h, beside);
            if (row >= s.y.h || beside) continue;
            for (int j = 0; j < window.width; ++j) {
                const int w = at.w + window.left - j * window.dilation_w;
                const int column = w < 0 ? s.y.w : s.stride_w.split(w, beside);
                if (column >= s.y.w || beside) continue;
                for (int m = 0; m < s.multiplier; ++m) {
                    const int filter = at.c * s.multiplier + m;
                    C v[N], by[N];
                    load(dy + offset(s.y, at.n, filter, row, column), whole, v);
                    load(weight + (int64)(i * window.width + j) * s.y.c + filter, whole, by);
#pragma unroll
                    for (int k = 0; k < N; ++k) sum[k] += v[k] * by[k];
                }
            }
        }
        store(dx + offset(s.x, at), whole, sum);
    }
}

// Threads of a block: `slots` packs of filters, THREADS / slots positions at a time, which are merged by a tree in the
// end. blockIdx: packs, TAPS taps, `each` positions of y. partials: (splits, k, kh, kw).
template <int N>
__device__ void gradient(Channels<N>, const Depthwise& s, int slots, int each, const T* x, const T* dy, C* partials, C* shared) {
    const bool whole = is_aligned(x) && is_aligned(dy);
    const Window& window = s.window;
    const int lanes = THREADS / slots, slot = threadIdx.x % slots, lane = threadIdx.x / slots;
    const int filter = (blockIdx.x * slots + slot) * N, first = blockIdx.y * TAPS;
    const int taps = window.height * window.width, channel = s.multiplier == 1 ? filter : filter / s.multiplier;
    C sum[TAPS][N] = {};
    const unsigned end = min((blockIdx.z + 1) * (unsigned)each, s.positions.count);
    for (unsigned number = blockIdx.z * each + lane; number < end && filter < s.y.c; number += lanes) {
        const Position at = position_of(s.positions, number);
        const int top = at.h * window.stride_h - window.top, left = at.w * window.stride_w - window.left;
        C slope[N];
        load(dy + offset(s.y, at.n, filter, at.h, at.w), whole, slope);
        int i = first / window.width, j = first % window.width;
#pragma unroll
        for (int tap = 0; tap < TAPS; ++tap) {
            const int h = top + i * window.dilation_h, w = left + j * window.dilation_w;
            if (i < window.height && (unsigned)h < (unsigned)s.x.h && (unsigned)w < (unsigned)s.x.w) {
                C v[N];
                load(x + offset(s.x, at.n, channel, h, w), whole, v);
#pragma unroll
                for (int k = 0; k < N; ++k) sum[tap][k] += v[k] * slope[k];
            }
            if (++j == window.width) j = 0, ++i;
        }
    }
    C* target = partials + (int64)blockIdx.z * s.y.c * taps;
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap)
#pragma unroll
        for (int k = 0; k < N; ++k) {
            shared[threadIdx.x] = sum[tap][k];
            __syncthreads();
            for (int half = lanes / 2; half > 0; half /= 2) {
                if (lane < half) shared[threadIdx.x] += shared[threadIdx.x + half * slots];
                __syncthreads();
            }
            if (lane == 0 && filter < s.y.c && first + tap < taps)
                target[(int64)(filter + k) * taps + first + tap] = shared[threadIdx.x];
        }
}

// bias may be null.
extern "C" __global__ void depthwise_conv2d(Depthwise s, const T* x, const T* weight, const T* bias, int64 bias_step,
                                            T* y, int bound) {
    by_channels(s.positions.pack, [&](auto n) { depthwise(n, s, x, weight, bias, bias_step, y, bound); });
}

extern "C" __global__ void depthwise_conv2d_derivative(Depthwise s, const T* dy, const T* weight, T* dx) {
    by_channels(s.positions.pack, [&](auto n) { derivative(n, s, dy, weight, dx); });
}

// positions: of y without its channels.
extern "C" __global__ void depthwise_conv2d_gradient(Depthwise s, int pack, int slots, int each, const T* x, const T* dy,
                                                     C* partials) {
    __shared__ C shared[THREADS];
    by_channels(pack, [&](auto n) { gradient(n, s, slots, each, x, dy, partials, shared); });
}
