// Root mean square normalization of rows in C order without gaps: a warp for each row; gamma's gradient in two stages.
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

// Partial sums over rows of dy * x * inv_rms. plane: dy, x, inv_rms.
extern "C" __global__ void rms_slab_gradients(Plane<3> plane, const T* dy, const T* x, const T* inv_rms, C* sums) {
    __shared__ C memory[VECTOR * THREADS];
    auto add = [=](const int64(&at)[3], C dy, C x, C& sum) { sum = fma(dy, x * C(inv_rms[at[2]]), sum); };
    by_lanes(plane, are_aligned(in(dy), in(x)),
             [&](auto lanes) { sum_of_slab<decltype(lanes)>(plane, dy, x, sums, memory, add); });
}

extern "C" __global__ void rms_norm_gradient(const C* sums, unsigned slabs, T* dgamma, int64 features) {
    const int64 feature = warp_index();
    if (feature >= features) return;
    const C sum = sum_of_slabs(sums + feature * slabs, slabs);
    if (LANE == 0) dgamma[feature] = T(sum);
}
