// Local response normalization over neighbouring channels.
#include "plane.cuh"

// body(channel, offsets of channel 0) for each element of a thread; neighbouring threads take neighbouring elements.
template <int N, class Body> __device__ __forceinline__ void each_element(const Plane<N>& plane, Body body) {
    const unsigned channels = (unsigned)plane.kept.count, positions = (unsigned)plane.summed.count;
    const int64 step = (int64)gridDim.x * THREADS;
    for (int64 i = (int64)blockIdx.x * THREADS + threadIdx.x; i < (int64)channels * positions; i += step) {
        const unsigned major = (unsigned)i / (plane.kept_inner ? channels : positions);
        const unsigned minor = (unsigned)i - major * (plane.kept_inner ? channels : positions);
        const int64 zero[N] = {};
        int64 at[N];
        locate<Lanes<1, false>>(plane.summed, plane.kept_inner ? major : minor, zero, at);
        body((int)(plane.kept_inner ? minor : major), at);
    }
}

// The channels of a window.
struct Window {
    int first, last;
};
__device__ inline Window window(int channel, int reach, int64 channels) {
    return {max(0, channel - reach), (int)min(channels - 1, (int64)channel + reach)};
}

// scale ** -beta; the usual exponent without its logarithm.
__device__ inline C shrink(C scale, C beta) {
    if (beta == C(0.75)) {
        const C root = sqrt(scale);
        return C(1) / (root * sqrt(root));
    }
    return pow(scale, -beta);
}

// plane: x, y, scale.
extern "C" __global__ void lrn(Plane<3> plane, const T* x, T* y, T* scale, int reach, double share, double beta,
                               double k) {
    each_element(plane, [&](int channel, const int64(&at)[3]) {
        const Window near = window(channel, reach, plane.kept.count);
        const int64 across = inner(plane.kept, 0);
        C sum = 0;
        for (int c = near.first; c <= near.last; ++c) {
            const C v = C(x[at[0] + c * across]);
            sum = fma(v, v, sum);
        }
        const C own = fma(C(share), sum, C(k));
        y[at[1] + channel * inner(plane.kept, 1)] = T(C(x[at[0] + channel * across]) * shrink(own, C(beta)));
        scale[at[2] + channel * inner(plane.kept, 2)] = T(own);
    });
}

// dx = dy * scale**-beta - factor * x * windowsum(dy * x * scale**(-beta - 1)). plane: dy, x, scale, dx.
extern "C" __global__ void lrn_derivative(Plane<4> plane, const T* dy, const T* x, const T* scale, T* dx, int reach,
                                          double factor, double beta) {
    each_element(plane, [&](int channel, const int64(&at)[4]) {
        const Window near = window(channel, reach, plane.kept.count);
        C sum = 0, own = 0;
        for (int c = near.first; c <= near.last; ++c) {
            const C s = C(scale[at[2] + c * inner(plane.kept, 2)]);
            const C g = C(dy[at[0] + c * inner(plane.kept, 0)]) * shrink(s, C(beta));
            sum += g * C(x[at[1] + c * inner(plane.kept, 1)]) / s;
            if (c == channel) own = g;
        }
        const C v = C(x[at[1] + channel * inner(plane.kept, 1)]);
        dx[at[3] + channel * inner(plane.kept, 3)] = T(fma(-C(factor) * v, sum, own));
    });
}
