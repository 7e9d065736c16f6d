// Matrix products with a bias and ReLU, by tiles in shared memory. Any strides; sums in C. T: type of the factors,
// S: of the result and its bias.
#include "map.cuh"

// A block makes a tile of TILE x TILE results, DEPTH products of each at a time; a thread EACH x EACH of them.
#define TILE 64
#define DEPTH 16
#define EACH 4
#define THREADS 256
// Elements that a thread brings of each factor's tile.
#define BROUGHT (TILE * DEPTH / THREADS)

// ADDED: what y held is added.
enum Activation { NONE = 0, RELU = 1, ADDED = 2 };

// y (rows, columns) = a (rows, depth) @ b (depth, columns). Strides count elements. Laid out as in linear.py.
struct Matrices {
    unsigned rows, columns, depth, activation;
    int64 a_row, a_depth, b_column, b_depth, y_row, y_column, bias;
};

struct alignas(16) Few {
    C v[EACH];
};

// The same of S, where results are stored together.
struct alignas(EACH * sizeof(S) < 16 ? EACH * sizeof(S) : 16) Stored {
    S v[EACH];
};

// Part of a factor: TILE lines (rows of a, columns of b) of DEPTH elements. One element more: fewer bank conflicts.
typedef Few Tile[DEPTH][TILE / EACH + 1];

// One factor, seen from its lines: what a thread brings to its tiles. Neighbouring threads take neighbours in memory.
struct Factor {
    const T* next;
    int64 apart, advance;            // between the thread's elements of one tile, and from tile to tile
    unsigned line, k, by_line, by_k; // of the thread's first element in a tile, and steps to the next
    int lines, depth;                // what is left from the tile's first line and depth on
    C brought[BROUGHT];

    __device__ inline Factor(const T* p, unsigned all, unsigned first, unsigned depth, int64 per_line, int64 per_depth)
        : lines(all - first), depth(depth) {
        const bool in_depth = per_depth < per_line;
        const unsigned thread = threadIdx.x;
        line = in_depth ? thread / DEPTH : thread % TILE;
        k = in_depth ? thread % DEPTH : thread / TILE;
        by_line = in_depth ? THREADS / DEPTH : 0;
        by_k = in_depth ? 0 : THREADS / TILE;
        apart = by_line * per_line + by_k * per_depth;
        advance = DEPTH * per_depth;
        next = p + (first + line) * per_line + k * per_depth;
    }
    __device__ inline void bring() {
#pragma unroll
        for (int i = 0; i < BROUGHT; ++i) {
            const bool inside = (int)(line + i * by_line) < lines && (int)(k + i * by_k) < depth;
            brought[i] = inside ? C(next[i * apart]) : C(0);
        }
        next += advance;
        depth -= DEPTH;
    }
    __device__ inline void put(Tile& tile) const {
#pragma unroll
        for (int i = 0; i < BROUGHT; ++i) {
            const unsigned l = line + i * by_line;
            tile[k + i * by_k][l / EACH].v[l % EACH] = brought[i];
        }
    }
};

// Neighbours in a row of y, from `column` on. ReLU leaves NaN.
__device__ inline void store(const Matrices& m, C (&sums)[EACH], const S* bias, unsigned column, S* row) {
    Stored results;
    S* y = row + column * m.y_column;
#pragma unroll
    for (int j = 0; j < EACH; ++j) {
        if (m.activation == ADDED && column + j < m.columns) sums[j] += C(y[j * m.y_column]);
        if (bias && column + j < m.columns) sums[j] += C(bias[(column + j) * m.bias]);
        results.v[j] = S(m.activation == RELU && sums[j] < C(0) ? C(0) : sums[j]);
    }
    if (m.y_column == 1 && column + EACH <= m.columns && reinterpret_cast<uint64>(y) % alignof(Stored) == 0) {
        *reinterpret_cast<Stored*>(y) = results;
    } else {
#pragma unroll
        for (int j = 0; j < EACH; ++j)
            if (column + j < m.columns) y[j * m.y_column] = results.v[j];
    }
}

// The batch's matrices of y, a and b lie as the walk's three operands.
extern "C" __global__ void __launch_bounds__(THREADS)
    matrix_product(Walk<3> batch, Matrices m, const T* a, const T* b, const S* bias, S* y) {
    __shared__ Tile left, right;
    const unsigned tx = threadIdx.x % (TILE / EACH), ty = threadIdx.x / (TILE / EACH);
    const unsigned row = blockIdx.x * TILE + ty * EACH, column = blockIdx.y * TILE + tx * EACH;
    for (int64 number = blockIdx.z; number < batch.count; number += gridDim.z) {
        int64 at[3];
        offsets(batch, (unsigned)number, at);
        Factor in_a(a + at[1], m.rows, blockIdx.x * TILE, m.depth, m.a_row, m.a_depth);
        Factor in_b(b + at[2], m.columns, blockIdx.y * TILE, m.depth, m.b_column, m.b_depth);
        C sums[EACH][EACH] = {};
        in_a.bring();
        in_b.bring();
        for (unsigned from = 0; from < m.depth; from += DEPTH) {
            __syncthreads();
            in_a.put(left);
            in_b.put(right);
            __syncthreads();
            in_a.bring(); // the next tiles, on their way while these are multiplied
            in_b.bring();
#pragma unroll
            for (int k = 0; k < DEPTH; ++k) {
                const Few u = left[k][ty], v = right[k][tx];
#pragma unroll
                for (int i = 0; i < EACH; ++i)
#pragma unroll
                    for (int j = 0; j < EACH; ++j) sums[i][j] += u.v[i] * v.v[j];
            }
        }
#pragma unroll
        for (int i = 0; i < EACH; ++i)
            if (row + i < m.rows) store(m, sums[i], bias, column, y + at[0] + (row + i) * m.y_row);
    }
}

// y = x + bias, the bias broadcast by strides of 0.
extern "C" __global__ void add_bias(Walk<3> walk, const T* x, const S* bias, T* y) {
    map(walk, [](C& y, C x, C bias) { y = x + bias; }, out(y), in(x), in(bias));
}
