// What is beside a loss over rows of scores. S: the ids' type.
#include "plane.cuh"

#define LANES 32
#define LANE (threadIdx.x % LANES)
#define EACH_ROW(row) for (int64 row = warp_index(); row < rows; row += (int64)gridDim.x * (THREADS / LANES))

// One block, which counts before it writes.
extern "C" __global__ void __launch_bounds__(THREADS)
    target_weights(const S* target, S* ids, T* weights, int64 rows, int64 ignored) {
    double counted = 0;
    for (int64 row = threadIdx.x; row < rows; row += THREADS) counted += (int64)target[row] != ignored;
    counted = block_sum(counted);
    const T weight = T(C(counted > 0 ? (double)rows / counted : 0.0));
    for (int64 row = threadIdx.x; row < rows; row += THREADS) {
        const S id = target[row];
        const bool counts = (int64)id != ignored;
        ids[row] = counts ? id : S(0);
        weights[row] = counts ? weight : T(C(0));
    }
}

extern "C" __global__ void smooth_labels(const T* x, const S* target, T* losses, int64 rows, int64 classes,
                                         double share) {
    EACH_ROW(row) {
        const T* const own = x + row * classes;
        C sum = 0;
        for (int64 c = LANE; c < classes; c += LANES) sum += C(own[c]);
        const C mean = warp_sum(sum) / C(classes);
        const int64 id = (int64)target[row];
        if (LANE == 0 && id >= 0 && id < classes) losses[row] = T(C(losses[row]) + C(share) * (C(own[id]) - mean));
    }
}

extern "C" __global__ void smooth_labels_derivative(const T* dlosses, const S* target, T* dx, int64 rows,
                                                    int64 classes, double share) {
    EACH_ROW(row) {
        const C slope = C(dlosses[row]) * C(share), all = slope / C(classes);
        const int64 id = (int64)target[row];
        for (int64 c = LANE; c < classes; c += LANES) {
            T* const own = dx + row * classes + c;
            *own = T(C(*own) - all + (c == id ? slope : C(0)));
        }
    }
}
