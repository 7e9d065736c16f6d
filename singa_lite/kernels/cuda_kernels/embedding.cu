// Rows of a table by ids, and gradients of rows. All tensors lie in C order without gaps. S: the ids' type.
//
// A gradient sorts the ids once, and then sums each row's places in rising order. A key is (row << 32) + place, so all
// keys differ, the order is unique, and no sort needs to be stable. Ids outside the wanted rows, and the padding, get
// the row NO_ROW, which comes last.
#include "plane.cuh"

// Keys of a run that sort_tiles sorts.
#define TILE 256
// Keys of a piece of a row, which is summed apart, so that many warps share a row that occurs often.
#define PIECE 64
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

// A lane's sums of features from `from` on, LANES apart.
struct Sums {
    int64 features, from;
    C of[COLUMNS];

    // f(feature, its sum) for each of them.
    template <class F> __device__ inline void each(F f) {
#pragma unroll
        for (int k = 0; k < COLUMNS; ++k)
            if (from + k * LANES < features) f(from + k * LANES, of[k]);
    }
    // Adds rows first to end - 1 that at(index) has; their loads overlap.
    template <class At> __device__ inline void add(int64 first, int64 end, At at) {
#pragma unroll 4
        for (int64 i = first; i < end; ++i) {
            const auto* const own = at(i);
            each([=](int64 feature, C& sum) { sum += C(own[feature]); });
        }
    }
    // Adds the places of keys first to end - 1.
    __device__ inline void add_keys(const uint64* keys, const T* dy, int64 first, int64 end) {
        add(first, end, [=](int64 i) { return dy + (int64)(keys[i] & 0xffffffffull) * features; });
    }
};

// body(item, sums) for each item, such as a row, and LANES * COLUMNS of its features at a time: a warp's work.
template <class Body> __device__ inline void each_item(int64 items, int64 features, Body body) {
    const int64 width = LANES * COLUMNS, chunks = (features + width - 1) / width;
    for (int64 i = warp_index(); i < items * chunks; i += (int64)gridDim.x * (THREADS / LANES))
        body(i / chunks, Sums{features, i % chunks * width + threadIdx.x % LANES, {}});
}

// pieces[slot][feature]: sums of the full pieces of rows. A row's pieces count from its own first key, so that its sum does
// not go by the rows beside it; a piece's slot is that of PIECE neighbouring keys in which it begins. At most one of them
// begins there and is full: that of the row of the last of these keys.
extern "C" __global__ void sum_pieces(const uint64* keys, const int64* starts, const T* dy, C* pieces, int64 count,
                                      int64 features) {
    each_item(count, features, [=](int64 slot, Sums sums) {
        const uint64 row = keys[slot * PIECE + PIECE - 1] >> 32;
        if (row == NO_ROW) return;
        const int64 own = starts[row], behind = own - slot * PIECE;
        const int64 first = behind >= 0 ? own : slot * PIECE + (behind % PIECE + PIECE) % PIECE;
        if (first + PIECE > starts[row + 1]) return;
        sums.add_keys(keys, dy, first, first + PIECE);
        sums.each([=](int64 feature, C sum) { pieces[slot * features + feature] = sum; });
    });
}

// body(index in the table, sum) for each row that occurs, or for every row, and each of its features.
template <class Body>
__device__ inline void sum_rows(const uint64* keys, const int64* starts, const C* pieces, const T* dy, int64 rows,
                                int64 features, bool every, Body body) {
    each_item(rows, features, [=](int64 row, Sums sums) {
        const int64 first = starts[row], end = starts[row + 1];
        if (first == end && !every) return;
        const int64 full = (end - first) / PIECE;
        sums.add(first / PIECE, first / PIECE + full, [=](int64 slot) { return pieces + slot * features; });
        sums.add_keys(keys, dy, first + full * PIECE, end);
        sums.each([=](int64 feature, C sum) { body(row * features + feature, sum); });
    });
}

extern "C" __global__ void embedding_gradient(const uint64* keys, const int64* starts, const C* pieces, const T* dy,
                                              T* dweight, int64 rows, int64 features) {
    sum_rows(keys, starts, pieces, dy, rows, features, true, [=](int64 i, C sum) { dweight[i] = T(sum); });
}

extern "C" __global__ void embedding_gradient_add(const uint64* keys, const int64* starts, const C* pieces,
                                                  const T* dy, T* dweight, int64 rows, int64 features) {
    sum_rows(keys, starts, pieces, dy, rows, features, false,
             [=](int64 i, C sum) { dweight[i] = T(C(dweight[i]) + sum); });
}

extern "C" __global__ void count_up(int64* count) { *count += 1; }

extern "C" __global__ void sgd_rows(const uint64* keys, const int64* starts, const C* pieces, const T* dy,
                                    const double* rate, T* value, int64 rows, int64 features, double lr_mult) {
    const C step = C(*rate * lr_mult);
    sum_rows(keys, starts, pieces, dy, rows, features, false,
             [=](int64 i, C sum) { value[i] = T(C(value[i]) - step * sum); });
}
