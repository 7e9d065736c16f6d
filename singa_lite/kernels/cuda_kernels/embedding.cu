// Rows of a table by ids, and gradients of rows: a warp for each row of the table, which looks through all ids. All
// tensors lie in C order without gaps. S: the ids' type.
#include "plane.cuh"

#define LANES 32

extern "C" __global__ void embedding(const S* ids, const T* weight, T* y, int64 places, int64 rows, int64 features) {
    const int64 step = (int64)gridDim.x * blockDim.x;
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < places * features; i += step) {
        const int64 id = (int64)ids[i / features];
        y[i] = id >= 0 && id < rows ? weight[id * features + i % features] : T(-log(C(0)) + log(C(0)));
    }
}

// How often the row occurs.
__device__ inline int occurrences(const S* ids, int64 places, int64 row) {
    int found = 0;
    for (int64 place = threadIdx.x % LANES; place < places; place += LANES) found += (int64)ids[place] == row;
    return warp_sum(found);
}

// The sum of what stands at the row's places, in their order.
__device__ inline C sum_of_row(const S* ids, const T* dy, int64 places, int64 row, int64 feature, int64 features) {
    C sum = 0;
    for (int64 place = 0; place < places; ++place)
        if ((int64)ids[place] == row) sum += C(dy[place * features + feature]);
    return sum;
}

// rows: of dweight, whose first is the table's row `first`.
extern "C" __global__ void embedding_gradient(const S* ids, const T* dy, T* dweight, int64 places, int64 rows,
                                              int64 features, int64 first, int64 padding) {
    for (int64 own = warp_index(); own < rows; own += (int64)gridDim.x * (THREADS / LANES)) {
        const int64 row = first + own;
        const bool counts = occurrences(ids, places, row) && row != padding;
        for (int64 feature = threadIdx.x % LANES; feature < features; feature += LANES)
            dweight[own * features + feature] =
                T(counts ? sum_of_row(ids, dy, places, row, feature, features) : C(0));
    }
}

extern "C" __global__ void embedding_gradient_add(const S* ids, const T* dy, T* dweight, int64 places, int64 rows,
                                                  int64 features, int64 first, int64 padding) {
    for (int64 own = warp_index(); own < rows; own += (int64)gridDim.x * (THREADS / LANES)) {
        const int64 row = first + own;
        if (!occurrences(ids, places, row) || row == padding) continue;
        for (int64 feature = threadIdx.x % LANES; feature < features; feature += LANES) {
            T* const sum = dweight + own * features + feature;
            *sum = T(C(*sum) + sum_of_row(ids, dy, places, row, feature, features));
        }
    }
}

extern "C" __global__ void count_up(int64* count) { *count += 1; }

extern "C" __global__ void sgd_rows(const S* ids, const T* dy, const double* rate, T* value, int64 places, int64 rows,
                                    int64 features, double lr_mult, int64 padding) {
    const C step = C(*rate * lr_mult);
    for (int64 row = warp_index(); row < rows; row += (int64)gridDim.x * (THREADS / LANES)) {
        if (!occurrences(ids, places, row) || row == padding) continue;
        for (int64 feature = threadIdx.x % LANES; feature < features; feature += LANES) {
            const C sum = sum_of_row(ids, dy, places, row, feature, features);
            T* const own = value + row * features + feature;
            *own = T(C(*own) - step * sum);
        }
    }
}
