// Attention by tiles: what is done to a tile of scores between its products. A block does a row of one head.
#include "philox.cuh"
#include "reduce.cuh"

// A tile of scores (batch, rows, keys), one behind the other. Steps count elements; those of the mask and of first keys are
// 0 along the batch where all heads share them. number: of the uniform number of the tile's first score.
struct Tile {
    int64 rows, keys, row, causal;
    int64 lse_steps[2], mask_steps[2], first_steps[2], key_step;
    int64 number, batch_numbers, row_numbers;
    double scale, p;
};

// What a block knows of its row.
struct TileRow {
    int64 batch, row, begin, end;
    uint64 number;

    __device__ inline TileRow(const Tile& tile, const F* first) {
        batch = blockIdx.x / tile.rows;
        row = blockIdx.x % tile.rows;
        end = tile.causal && tile.row + row < tile.keys ? tile.row + row + 1 : tile.keys;
        begin = first ? first[batch * tile.first_steps[0] + row * tile.first_steps[1]] : 0;
        number = tile.number + batch * tile.batch_numbers + row * tile.row_numbers;
    }
    __device__ inline int64 start(const Tile& tile) const { return (batch * tile.rows + row) * tile.keys; }
    __device__ inline bool sees(const Tile& tile, const M* mask, int64 key) const {
        if (key < begin || key >= end) return false;
        return !mask || C(mask[batch * tile.mask_steps[0] + key * tile.mask_steps[1]]) != C(0);
    }
    // f(key, whether its probability is kept) for each key of the tile. A thread takes all numbers of a Philox block.
    template <class G> __device__ inline void each_key(const Tile& tile, const uint64* words, G f) const {
        if (!words) {
            for (int64 key = threadIdx.x; key < tile.keys; key += blockDim.x) f(key, true);
            return;
        }
        const Key stream = key_at(words, tile.key_step);
        const float least = float(tile.p);
        const int64 last = (int64)((number + tile.keys - 1) / 8);
        for (int64 block = (int64)(number / 8) + threadIdx.x; block <= last; block += blockDim.x) {
            const Words drawn = philox(stream, (uint64)block);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int64 key = block * 8 + i - (int64)number;
                float uniform;
                number_of(drawn, i, uniform);
                if (key >= 0 && key < tile.keys) f(key, uniform >= least);
            }
        }
    }
};

// probabilities, which may be the scores' memory: softmax of scale * scores over the keys that a row sees, those that are
// kept divided by 1 - p; lse: the log of the sum of powers.
extern "C" __global__ void attention_probabilities(
    const C* scores, const M* mask, const F* first, const uint64* key, T* probabilities, L* lse, Tile tile) {
    const TileRow row(tile, first);
    const int64 start = row.start(tile);
    const C scale = C(tile.scale);
    C top = -infinity(), sum = C(0);
    for (int64 k = threadIdx.x; k < row.end; k += blockDim.x)
        if (row.sees(tile, mask, k)) top = Largest<C>()(top, scale * scores[start + k]);
    top = block_max(top);
    for (int64 k = threadIdx.x; k < row.end; k += blockDim.x)
        if (row.sees(tile, mask, k)) sum += exp(scale * scores[start + k] - top);
    sum = block_sum(sum);
    const bool sees_any = top != -infinity();
    if (threadIdx.x == 0)
        lse[row.batch * tile.lse_steps[0] + row.row * tile.lse_steps[1]] = L(sees_any ? top + log(sum) : C(0));
    const C factor = C(1) / (sum * C(1 - tile.p));
    row.each_key(tile, key, [=](int64 k, bool kept) {
        const bool counts = kept && row.sees(tile, mask, k);
        probabilities[start + k] = T(counts ? exp(scale * scores[start + k] - top) * factor : C(0));
    });
}

// used, which may be the scores' memory: dropped probabilities; slopes, which may be that of dp: the derivative by the
// products of q and k. dy and y: (batch, rows, size), by these steps.
extern "C" __global__ void attention_slopes(
    const C* scores, const C* dp, const T* dy, const T* y, const M* mask, const F* first, const uint64* key,
    const L* lse, T* used, T* slopes, Tile tile, int64 size, int64 dy_batch, int64 dy_row, int64 dy_step,
    int64 y_batch, int64 y_row, int64 y_step) {
    const TileRow row(tile, first);
    const int64 start = row.start(tile);
    const T *of_dy = dy + row.batch * dy_batch + row.row * dy_row, *of_y = y + row.batch * y_batch + row.row * y_row;
    C delta = C(0);
    for (int64 i = threadIdx.x; i < size; i += blockDim.x) delta += C(of_dy[i * dy_step]) * C(of_y[i * y_step]);
    delta = block_sum(delta);
    const C scale = C(tile.scale), left = C(1 - tile.p);
    const C log_sum = C(lse[row.batch * tile.lse_steps[0] + row.row * tile.lse_steps[1]]);
    row.each_key(tile, key, [=](int64 k, bool kept) {
        C share = C(0), slope = C(0);
        if (row.sees(tile, mask, k)) {
            share = exp(scale * scores[start + k] - log_sum);
            slope = scale * share * ((kept ? dp[start + k] / left : C(0)) - delta);
        }
        used[start + k] = T(kept ? share / left : C(0));
        slopes[start + k] = T(slope);
    });
}

// y (batch, keys, size), one behind the other: x, and 0 where the mask hides a key, whatever x holds there.
extern "C" __global__ void seen_rows(const T* x, const M* mask, T* y, int64 count, int64 keys, int64 size,
                                     int64 x_batch, int64 x_key, int64 x_step, int64 mask_batch, int64 mask_key) {
    EACH(int64, i, count) {
        const int64 batch = i / (keys * size), key = i / size % keys;
        const bool sees = C(mask[batch * mask_batch + key * mask_key]) != C(0);
        y[i] = sees ? x[batch * x_batch + key * x_key + i % size * x_step] : T(C(0));
    }
}
