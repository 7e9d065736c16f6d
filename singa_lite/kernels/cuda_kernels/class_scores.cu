// Cross entropy of rows of scores of which only some classes are there at a time, and what is beside a loss over rows:
// a warp for each row. S: the ids' type.
#include "plane.cuh"

extern "C" __global__ void log_sum_exp(const T* x, T* y, int64 rows, int64 classes) {
    EACH_ROW(row) {
        const T* const own = x + row * classes;
        C top = -infinity(), sum = 0;
        for (int64 c = LANE; c < classes; c += LANES) top = Largest<C>()(top, C(own[c]));
        top = warp_max(top);
        for (int64 c = LANE; c < classes; c += LANES) sum += exp(C(own[c]) - top);
        sum = warp_sum(sum);
        if (LANE == 0) y[row] = T(log(sum) + top);
    }
}

// columns: classes that are there, from `first` on; classes: all.
extern "C" __global__ void softmax_classes_derivative(const T* dlosses, const T* x, const T* lse, const S* target, T* dx,
                                                      int64 rows, int64 columns, int64 first, int64 classes,
                                                      double share) {
    EACH_ROW(row) {
        const C slope = C(dlosses[row]), log_sum = C(lse[row]), all = C(share) / C(classes);
        const int64 own = (int64)target[row] - first;
        for (int64 c = LANE; c < columns; c += LANES) {
            const int64 at = row * columns + c;
            const C share_of_all = exp(C(x[at]) - log_sum) - all - (c == own ? C(1) - C(share) : C(0));
            dx[at] = T(slope == C(0) ? C(0) : slope * share_of_all);
        }
    }
}

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
