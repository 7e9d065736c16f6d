// Matrix products tile by tile through shared memory, of operands that say how their elements are found.
#pragma once
#include "numbers.cuh"

// Sums that a thread has along each side of a tile, and elements that it loads at a time.
#define QUAD 4
#define TILE_THREADS 256

struct alignas(QUAD * sizeof(T) < 16 ? QUAD * sizeof(T) : 16) Quad {
    T v[QUAD];
};

__device__ inline bool is_quad_aligned(const T* p) { return reinterpret_cast<uint64>(p) % alignof(Quad) == 0; }

__device__ inline void load_quad(const T* p, C (&v)[QUAD]) {
    const Quad quad = *reinterpret_cast<const Quad*>(p);
#pragma unroll
    for (int q = 0; q < QUAD; ++q) v[q] = C(quad.v[q]);
}

// One operand's part of a tile, SIDE outer indices by DEPTH terms of the sums. An operand has a type At,
// at(outer) for an outer index or, where its quads lie along the outer axis, for the first of four, and
// load(at, term, v) for a quad; both give zeros outside.
template <class Operand, int SIDE, int DEPTH> struct Loader {
    static const int ALL = SIDE * DEPTH / QUAD, OWN = (ALL + TILE_THREADS - 1) / TILE_THREADS;
    static const int ALONG = (Operand::along_terms ? DEPTH : SIDE) / QUAD, STRIDE = SIDE + QUAD;
    typename Operand::At at[OWN];
    C v[OWN][QUAD];

    __device__ static inline int number(int own) { return own * TILE_THREADS + (int)threadIdx.x; }
    // Of a quad within the tile.
    __device__ static inline int outer(int own) {
        return Operand::along_terms ? number(own) / ALONG : number(own) % ALONG * QUAD;
    }
    __device__ static inline int term(int own) {
        return Operand::along_terms ? number(own) % ALONG * QUAD : number(own) / ALONG;
    }
    __device__ static inline bool is_mine(int own) { return ALL % TILE_THREADS == 0 || number(own) < ALL; }

    __device__ inline void start(const Operand& operand, int first) {
#pragma unroll
        for (int own = 0; own < OWN; ++own)
            if (is_mine(own)) at[own] = operand.at(first + outer(own));
    }
    __device__ inline void load(const Operand& operand, int from) {
#pragma unroll
        for (int own = 0; own < OWN; ++own)
            if (is_mine(own)) operand.load(at[own], from + term(own), v[own]);
    }
    __device__ inline void put(C* shared) const {
#pragma unroll
        for (int own = 0; own < OWN; ++own) {
            if (!is_mine(own)) continue;
            C* target = shared + term(own) * STRIDE + outer(own);
#pragma unroll
            for (int q = 0; q < QUAD; ++q) target[Operand::along_terms ? q * STRIDE : q] = v[own][q];
        }
    }
};

// A tile of ROWS x COLUMNS sums over terms, DEPTH at a time; each thread has QUAD x QUAD of them.
template <int ROWS, int COLUMNS, int DEPTH> struct Tile {
    static const int ACROSS = COLUMNS / QUAD, ELEMENTS = DEPTH * (ROWS + COLUMNS + 2 * QUAD);
    C sum[QUAD][QUAD];

    // The first of the thread's rows and columns within the tile.
    __device__ static inline int row() { return (int)threadIdx.x / ACROSS * QUAD; }
    __device__ static inline int column() { return (int)threadIdx.x % ACROSS * QUAD; }

    // sum = the products of a's rows from `first_row` on and b's from `first_column` on, over terms [from, end).
    // shared: ELEMENTS.
    template <class A, class B>
    __device__ inline void multiply(const A& a, const B& b, int first_row, int first_column, int from, int end,
                                    C* shared) {
        C *shared_a = shared, *shared_b = shared + DEPTH * (ROWS + QUAD);
        Loader<A, ROWS, DEPTH> next_a;
        Loader<B, COLUMNS, DEPTH> next_b;
#pragma unroll
        for (int i = 0; i < QUAD; ++i)
#pragma unroll
            for (int j = 0; j < QUAD; ++j) sum[i][j] = C(0);
        next_a.start(a, first_row);
        next_b.start(b, first_column);
        next_a.load(a, from);
        next_b.load(b, from);
        for (int term = from; term < end; term += DEPTH) {
            next_a.put(shared_a);
            next_b.put(shared_b);
            __syncthreads();
            if (term + DEPTH < end) {
                next_a.load(a, term + DEPTH);
                next_b.load(b, term + DEPTH);
            }
            add(shared_a + row(), shared_b + column());
            __syncthreads();
        }
    }

    __device__ inline void add(const C* a, const C* b) {
#pragma unroll
        for (int term = 0; term < DEPTH; ++term) {
            C left[QUAD], right[QUAD];
#pragma unroll
            for (int q = 0; q < QUAD; ++q) {
                left[q] = a[term * (ROWS + QUAD) + q];
                right[q] = b[term * (COLUMNS + QUAD) + q];
            }
#pragma unroll
            for (int i = 0; i < QUAD; ++i)
#pragma unroll
                for (int j = 0; j < QUAD; ++j) sum[i][j] += left[i] * right[j];
        }
    }
};
