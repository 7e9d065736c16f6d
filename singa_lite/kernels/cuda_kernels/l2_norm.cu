// L2 normalization of samples. Sums are float64, as squares of float32 numbers may be too large or too small for it.
#include "plane.cuh"

// Partial sums of a * b.
extern "C" __global__ void slab_dots(Plane<2> plane, const T* a, const T* b, double* dots) {
    __shared__ double memory[VECTOR * THREADS];
    auto add = [](const int64(&)[2], C u, C v, double& dot) { dot = fma((double)u, (double)v, dot); };
    by_lanes(plane, are_aligned(in(a), in(b)),
             [&](auto lanes) { sum_of_slab<decltype(lanes)>(plane, a, b, dots, memory, add); });
}

extern "C" __global__ void l2_norms(const double* dots, unsigned slabs, int64 samples, int64 stride, double epsilon,
                                    T* norm) {
    const int64 sample = warp_index();
    if (sample >= samples) return;
    const double total = sum_of_slabs(dots + sample * slabs, slabs);
    if (threadIdx.x % 32 == 0) norm[sample * stride] = T(C(sqrt(total + epsilon)));
}

extern "C" __global__ void l2_divide(Walk<3> walk, const T* x, const T* norm, T* y) {
    map(walk, [](C& y, C x, C norm) { y = x / norm; }, out(y), in(x), in(norm));
}

extern "C" __global__ void l2_totals(const double* dots, unsigned slabs, int64 samples, C* total) {
    const int64 sample = warp_index();
    if (sample >= samples) return;
    const double sum = sum_of_slabs(dots + sample * slabs, slabs);
    if (threadIdx.x % 32 == 0) total[sample] = C(sum);
}

extern "C" __global__ void l2_derivative(Walk<5> walk, const T* dy, const T* y, const T* norm, const C* total, T* dx) {
    map(
        walk, [](C& dx, C dy, C y, C norm, C total) { dx = fma(-y, total, dy) / norm; },
        out(dx), in(dy), in(y), in(norm), in(total));
}
