// The gradient of depthwise convolution by its filters, in two stages: sums of splits of the positions, then of these.
#include "depthwise.cuh"

// As in routine.py.
#define THREADS 256
// Taps that a thread sums at a time, as in depthwise.py: so few that no register spills.
#define TAPS (VECTOR == 8 ? 5 : 9)

// Threads of a block: `slots` packs of filters, THREADS / slots positions at a time, which are merged by a tree in the
// end. blockIdx: packs, TAPS taps, `each` positions of y. partials: (splits, k, kh, kw).
template <int N>
__device__ void gradient(const Depthwise& s, int slots, int each, const T* x, const T* dy, C* partials, C* shared) {
    const bool whole = is_aligned(x) && is_aligned(dy);
    const Window& window = s.window;
    const int lanes = THREADS / slots, slot = threadIdx.x % slots, lane = threadIdx.x / slots;
    const int filter = (blockIdx.x * slots + slot) * N, first = blockIdx.y * TAPS;
    const int taps = window.height * window.width, channel = s.multiplier == 1 ? filter : filter / s.multiplier;
    C sum[TAPS][N];
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap)
#pragma unroll
        for (int k = 0; k < N; ++k) sum[tap][k] = C(0);
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

// positions: of y without its channels.
extern "C" __global__ void depthwise_conv2d_gradient(Depthwise s, int pack, int slots, int each, const T* x, const T* dy,
                                                     C* partials) {
    __shared__ C shared[THREADS];
    if (pack == 1)
        gradient<1>(s, slots, each, x, dy, partials, shared);
    else
        gradient<VECTOR>(s, slots, each, x, dy, partials, shared);
}
