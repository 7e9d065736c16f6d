// Rows of a table by ids, and gradients of rows. All tensors lie in C order without gaps. S: the ids' type.
//
// A gradient sorts the ids once, and then sums each row's places in rising order. A key is (row << 32) + place, so all
// keys differ, the order is unique, and no sort needs to be stable. Ids outside the wanted rows, and the padding, get
// the row NO_ROW, which comes last.
#include "plane.cuh"

// Keys of a run that sort_tiles sorts.
#define TILE 256
// Features that one warp sums at a time: COLUMNS for each lane, so that their loads overlap.
#define COLUMNS 4
#define NO_ROW 0xffffffffull

extern "C" __global__ void embedding(const S* ids, const T* weight, T* y, int64 places, int64 rows, int64 features) {
    EACH(int64, i, places * features) {
        const int64 id = (int64)ids[i / features];
        y[i] = id >= 0 && id < rows ? weight[id * features + i % features] : T(-log(C(0)) + log(C(0)));
    }
}

// rows: how many the keys count from the table's row `first`.
__device__ inline uint64 key_at(const S* ids, int64 place, int64 rows, int64 first, int64 padding) {
    const int64 id = (int64)ids[place];
    const bool wanted = id != padding && id >= first && id - first < rows;
    return ((wanted ? (uint64)(id - first) : NO_ROW) << 32) + (uint64)place;
}

// Sorts runs of TILE keys: a thread finds the rank of its key in its run. The run's ids lie in the cache.
extern "C" __global__ void sort_tiles(const S* ids, uint64* keys, int64 places, int64 rows, int64 first, int64 padding) {
    EACH(int64, i, places) {
        const int64 start = i / TILE * TILE, end = min(start + TILE, places);
        const uint64 key = key_at(ids, i, rows, first, padding);
        int64 rank = 0;
        for (int64 other = start; other < end; ++other) rank += key_at(ids, other, rows, first, padding) < key;
        keys[start + rank] = key;
    }
}

// The first index in [low, high) of a sorted key that is not less than `key`.
__device__ inline int64 lower_bound(const uint64* keys, int64 low, int64 high, uint64 key) {
    while (low < high) {
        const int64 middle = low + (high - low) / 2;
        if (keys[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Merges sorted runs of `width` keys, two into one: a key's place is its rank in its own run and in the other one.
extern "C" __global__ void merge_runs(const uint64* keys, uint64* merged, int64 places, int64 width) {
    EACH(int64, i, places) {
        const int64 run = i / width, pair = (run / 2) * 2 * width;
        const int64 other = min((run ^ 1) * width, places), end = min(other + width, places);
        const int64 before = lower_bound(keys, other, end, keys[i]) - other;
        merged[pair + (i - run * width) + before] = keys[i];
    }
}

// starts[row]: the index of the row's first key; starts[rows] is where the last row ends.
extern "C" __global__ void find_rows(const uint64* keys, int64* starts, int64 places, int64 rows) {
    EACH(int64, row, rows + 1) starts[row] = lower_bound(keys, 0, places, (uint64)row << 32);
}

// body(row, feature, sum) for each row that occurs, or for every row, and each of its features. A warp takes one row and
// LANES * COLUMNS features of it.
template <class Body>
__device__ inline void sum_rows(const uint64* keys, const int64* starts, const T* dy, int64 rows, int64 features,
                                bool every, Body body) {
    const int64 width = LANES * COLUMNS, chunks = (features + width - 1) / width;
    for (int64 item = warp_index(); item < rows * chunks; item += (int64)gridDim.x * (THREADS / LANES)) {
        const int64 row = item / chunks, from = item % chunks * width + threadIdx.x % LANES;
        const int64 first = starts[row], end = starts[row + 1];
        if (first == end && !every) continue;
        C sums[COLUMNS] = {};
        for (int64 i = first; i < end; ++i) {
            const T* const own = dy + (int64)(keys[i] & 0xffffffffull) * features;
#pragma unroll
            for (int k = 0; k < COLUMNS; ++k)
                if (from + k * LANES < features) sums[k] += C(own[from + k * LANES]);
        }
#pragma unroll
        for (int k = 0; k < COLUMNS; ++k)
            if (from + k * LANES < features) body(row, from + k * LANES, sums[k]);
    }
}

extern "C" __global__ void embedding_gradient(const uint64* keys, const int64* starts, const T* dy, T* dweight,
                                              int64 rows, int64 features) {
    sum_rows(keys, starts, dy, rows, features, true,
             [=](int64 row, int64 feature, C sum) { dweight[row * features + feature] = T(sum); });
}

extern "C" __global__ void embedding_gradient_add(const uint64* keys, const int64* starts, const T* dy, T* dweight,
                                                  int64 rows, int64 features) {
    sum_rows(keys, starts, dy, rows, features, false, [=](int64 row, int64 feature, C sum) {
        T* const own = dweight + row * features + feature;
        *own = T(C(*own) + sum);
    });
}

extern "C" __global__ void count_up(int64* count) { *count += 1; }

extern "C" __global__ void sgd_rows(const uint64* keys, const int64* starts, const T* dy, const double* rate, T* value,
                                    int64 rows, int64 features, double lr_mult) {
    const C step = C(*rate * lr_mult);
    sum_rows(keys, starts, dy, rows, features, false, [=](int64 row, int64 feature, C sum) {
        T* const own = value + row * features + feature;
        *own = T(C(*own) - step * sum);
    });
}
