// Depthwise convolution and its derivative by x: a thread for each pack of channels at one position.
// weight: (kh, kw, k) in C order, so that packs of filters lie in a row.
#include "activated.cuh"
#include "depthwise.cuh"

template <int N>
__device__ void depthwise(const Depthwise& s, const T* x, const T* weight, const T* bias, int64 bias_step, T* y,
                          int activation) {
    const bool whole = is_aligned(x) && is_aligned(weight) && is_aligned(y);
    const Window& window = s.window;
    const unsigned step = gridDim.x * blockDim.x;
    for (unsigned number = blockIdx.x * blockDim.x + threadIdx.x; number < s.positions.count; number += step) {
        const Position at = position_of(s.positions, number);
        const int top = at.h * window.stride_h - window.top, left = at.w * window.stride_w - window.left;
        const int channel = s.multiplier == 1 ? at.c : at.c / s.multiplier;
        C sum[N];
#pragma unroll
        for (int k = 0; k < N; ++k) sum[k] = C(0);
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
            sum[k] = activated(sum[k], activation);
        }
        store(y + offset(s.y, at), whole, sum);
    }
}

template <int N> __device__ void derivative(const Depthwise& s, const T* dy, const T* weight, T* dx) {
    const bool whole = is_aligned(dy) && is_aligned(weight) && is_aligned(dx);
    const Window& window = s.window;
    const unsigned step = gridDim.x * blockDim.x;
    for (unsigned number = blockIdx.x * blockDim.x + threadIdx.x; number < s.positions.count; number += step) {
        const Position at = position_of(s.positions, number);
        C sum[N];
#pragma unroll
        for (int k = 0; k < N; ++k) sum[k] = C(0);
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

// bias may be null.
extern "C" __global__ void depthwise_conv2d(Depthwise s, const T* x, const T* weight, const T* bias, int64 bias_step,
                                            T* y, int activation) {
    if (s.positions.pack == 1)
        depthwise<1>(s, x, weight, bias, bias_step, y, activation);
    else
        depthwise<VECTOR>(s, x, weight, bias, bias_step, y, activation);
}

extern "C" __global__ void depthwise_conv2d_derivative(Depthwise s, const T* dy, const T* weight, T* dx) {
    if (s.positions.pack == 1)
        derivative<1>(s, dy, weight, dx);
    else
        derivative<VECTOR>(s, dy, weight, dx);
}
