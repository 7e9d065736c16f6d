// Cross entropy of rows of scores of which only some classes are there at a time: a warp for each row. S: the ids' type.
#include "plane.cuh"

#define LANES 32
#define LANE (threadIdx.x % LANES)
#define EACH_ROW(row) for (int64 row = warp_index(); row < rows; row += (int64)gridDim.x * (THREADS / LANES))

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
