// Root mean square normalization of rows in C order without gaps: a warp for each row; for gamma's gradient a block for
// 32 features.
#include "plane.cuh"

#define EACH_FEATURE(i) for (int64 i = LANE; i < features; i += LANES)

extern "C" __global__ void rms_norm(const T* x, const T* gamma, T* y, T* inv_rms, int64 rows, int64 features,
                                    double epsilon) {
    EACH_ROW(row) {
        const T* const own = x + row * features;
        C sum = 0;
        EACH_FEATURE(i) sum = fma(C(own[i]), C(own[i]), sum);
        const C inverse = C(1) / sqrt(warp_sum(sum) / C(features) + C(epsilon));
        EACH_FEATURE(i) y[row * features + i] = T(C(own[i]) * inverse * C(gamma[i]));
        if (LANE == 0) inv_rms[row] = T(inverse);
    }
}

extern "C" __global__ void rms_norm_derivative(const T* dy, const T* x, const T* gamma, const T* inv_rms, T* dx,
                                               int64 rows, int64 features) {
    EACH_ROW(row) {
        const int64 first = row * features;
        const C inverse = C(inv_rms[row]);
        C sum = 0;
        EACH_FEATURE(i) sum = fma(rounded_product(C(dy[first + i]), C(gamma[i])), C(x[first + i]), sum);
        const C along = warp_sum(sum) / C(features) * inverse * inverse;
        EACH_FEATURE(i) {
            const C g = rounded_product(C(dy[first + i]), C(gamma[i]));
            dx[first + i] = T(inverse * fma(-C(x[first + i]), along, g));
        }
    }
}

// Threads: 32 neighbouring features by 8 shares of the rows.
extern "C" __global__ void rms_norm_gradient(const T* dy, const T* x, const T* inv_rms, T* dgamma, int64 rows,
                                             int64 features) {
    __shared__ C sums[8][LANES];
    const int64 feature = (int64)blockIdx.x * LANES + threadIdx.x;
    C sum = 0;
    if (feature < features)
        for (int64 row = threadIdx.y; row < rows; row += 8)
            sum = fma(C(dy[row * features + feature]), C(x[row * features + feature]) * C(inv_rms[row]), sum);
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || feature >= features) return;
    for (int share = 1; share < 8; ++share) sum += sums[share][threadIdx.x];
    dgamma[feature] = T(sum);
}
