// Sums and extremes along axes. T: x's type, S: that of the results. Which thread takes which terms, and so the result,
// depends on the numbers of results and terms alone, not on whether they are loaded one by one or in packs.
#include "map.cuh"
#include "reduce.cuh"

// Sums, or extremes, over the reduced axes of x, one for each element of the kept axes. Strides count elements. The
// reduced terms are cut into chunks of `chunk` terms, gridDim.y of them, whose results are stored one behind the other.
struct Sums {
    unsigned kept, reduced, chunk, packs; // packs: VECTOR neighbours lie in a row, and are aligned if x is
    unsigned kept_axes, reduced_axes;
    unsigned kept_extents[AXES], reduced_extents[AXES];
    int64 kept_in_x[AXES], kept_in_y[AXES], reduced_in_x[AXES];
};

__device__ inline int64 offset(unsigned index, unsigned axes, const unsigned* extents, const int64* strides) {
    int64 at = 0;
    for (int axis = (int)axes - 1; axis > 0; --axis) {
        at += index % extents[axis] * strides[axis];
        index /= extents[axis];
    }
    return at + index * strides[0];
}
__device__ inline int64 of_kept(const Sums& s, unsigned index) {
    return offset(index, s.kept_axes, s.kept_extents, s.kept_in_x);
}
__device__ inline int64 of_reduced(const Sums& s, unsigned index) {
    return offset(index, s.reduced_axes, s.reduced_extents, s.reduced_in_x);
}
__device__ inline int64 of_result(const Sums& s, unsigned index) {
    return offset(index, s.kept_axes, s.kept_extents, s.kept_in_y) + blockIdx.y;
}
__device__ inline bool in_packs(const Sums& s, const T* x) {
    return s.packs && reinterpret_cast<uint64>(x) % alignof(Pack<T>) == 0;
}

// How terms are joined: `first` is what a thread begins with, given some term, `stored` makes the result of all.
struct Total : Sum<C> {
    typedef C V;
    C alpha;
    __device__ inline Total(double alpha) : alpha(C(alpha)) {}
    __device__ inline C first(const T*) const { return C(0); }
    __device__ inline S stored(C total) const { return S(alpha * total); }
};
template <template <typename> class F> struct Extreme : F<Held<T>::type> {
    typedef Held<T>::type V;
    __device__ inline V first(const T* term) const { return V(*term); } // compared with itself later on
    __device__ inline S stored(V extreme) const { return S(extreme); }
};

// The reduced axes innermost: a team of blockDim.x threads has one result, VECTOR neighbouring terms each at a time.
template <class Fold> __device__ inline void fold_rows(const Sums& s, const T* x, S* y, const Fold& fold) {
    typedef typename Fold::V V;
    const int64 number = (int64)blockIdx.x * blockDim.y + threadIdx.y;
    const bool inside = number < s.kept;
    const unsigned begin = blockIdx.y * s.chunk, end = inside ? min(begin + s.chunk, s.reduced) : 0;
    const T* row = x + (inside ? of_kept(s, (unsigned)number) : 0);
    const bool packs = in_packs(s, x);
    V terms[VECTOR];
#pragma unroll
    for (int k = 0; k < VECTOR; ++k) terms[k] = fold.first(row + of_reduced(s, begin));
    unsigned at = begin + threadIdx.x * VECTOR;
    const unsigned step = blockDim.x * VECTOR;
    if (packs) {
#pragma unroll 4
        for (; at + VECTOR <= end; at += step) {
            const Pack<T> pack = *reinterpret_cast<const Pack<T>*>(row + of_reduced(s, at));
#pragma unroll
            for (int k = 0; k < VECTOR; ++k) terms[k] = fold(terms[k], V(pack.v[k]));
        }
    }
    for (; at < end; at += step) {
#pragma unroll
        for (int k = 0; k < VECTOR; ++k)
            if (at + k < end) terms[k] = fold(terms[k], V(row[of_reduced(s, at + k)]));
    }
#pragma unroll
    for (int half = VECTOR / 2; half > 0; half /= 2)
#pragma unroll
        for (int k = 0; k < half; ++k) terms[k] = fold(terms[k], terms[k + half]);
    const V joined = team_reduce(terms[0], fold);
    if (inside && threadIdx.x == 0) y[of_result(s, (unsigned)number)] = fold.stored(joined);
}

// The kept axes innermost: each thread has VECTOR columns, blockDim.y of them share a column's terms.
template <class Fold> __device__ inline void fold_columns(const Sums& s, const T* x, S* y, const Fold& fold) {
    typedef typename Fold::V V;
    __shared__ V shared[VECTOR][256];
    const unsigned lanes = blockDim.x, rows = blockDim.y, thread = threadIdx.y * lanes + threadIdx.x;
    const bool packs = in_packs(s, x);
    // Columns are shared out so that neighbouring threads load neighbouring elements or packs.
    const unsigned first = blockIdx.x * lanes * VECTOR + threadIdx.x * (packs ? VECTOR : 1), apart = packs ? 1 : lanes;
    const unsigned begin = blockIdx.y * s.chunk, end = min(begin + s.chunk, s.reduced);
    int64 columns[VECTOR];
    V terms[VECTOR];
#pragma unroll
    for (int k = 0; k < VECTOR; ++k) {
        const unsigned column = first + k * apart;
        columns[k] = of_kept(s, column < s.kept ? column : 0);
        terms[k] = fold.first(x + columns[k] + of_reduced(s, begin));
    }
    if (packs) {
        if (first < s.kept) {
            const T* column = x + of_kept(s, first);
#pragma unroll 4
            for (unsigned at = begin + threadIdx.y; at < end; at += rows) {
                const Pack<T> pack = *reinterpret_cast<const Pack<T>*>(column + of_reduced(s, at));
#pragma unroll
                for (int k = 0; k < VECTOR; ++k) terms[k] = fold(terms[k], V(pack.v[k]));
            }
        }
    } else {
        for (unsigned at = begin + threadIdx.y; at < end; at += rows) {
            const T* row = x + of_reduced(s, at);
#pragma unroll
            for (int k = 0; k < VECTOR; ++k) terms[k] = fold(terms[k], V(row[columns[k]]));
        }
    }
#pragma unroll
    for (int k = 0; k < VECTOR; ++k) shared[k][thread] = terms[k];
    for (unsigned half = rows / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half)
#pragma unroll
            for (int k = 0; k < VECTOR; ++k)
                shared[k][thread] = fold(shared[k][thread], shared[k][thread + half * lanes]);
    }
    if (threadIdx.y > 0) return;
#pragma unroll
    for (int k = 0; k < VECTOR; ++k) {
        const unsigned column = first + k * apart;
        if (column < s.kept) y[of_result(s, column)] = fold.stored(shared[k][thread]);
    }
}

// alpha: what sums are multiplied by.
#define FOLD(name, along, ...)                                                                       \
    extern "C" __global__ void __launch_bounds__(256) name(Sums s, const T* x, S* y, double alpha) { \
        along(s, x, y, __VA_ARGS__);                                                                 \
    }
FOLD(sum_rows, fold_rows, Total(alpha))
FOLD(sum_columns, fold_columns, Total(alpha))
FOLD(max_rows, fold_rows, Extreme<Largest>())
FOLD(max_columns, fold_columns, Extreme<Largest>())
FOLD(min_rows, fold_rows, Extreme<Smallest>())
FOLD(min_columns, fold_columns, Extreme<Smallest>())
