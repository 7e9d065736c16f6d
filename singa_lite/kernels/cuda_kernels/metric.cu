// Hits among the highest scores. A part of a warp does each position, operands in the order of the walk: the result,
// x, the target. Ties go to the lower class; a NaN score is no hit.
#include "positions.cuh"

// The best of the values so far; index -1: there was none.
template <typename V> struct Best {
    V value;
    int64 index;

    // NaN is above all numbers, as for numpy.argmax; scores never come here as NaN.
    __device__ inline void take(V other, int64 at) {
        const bool above = index < 0 || other > value || (other != other && value == value);
        const bool tied = other == value || (other != other && value != value);
        if (at >= 0 && (above || (tied && at < index))) {
            value = other;
            index = at;
        }
    }
    // The team's.
    __device__ inline void share() {
        for (int by = blockDim.x / 2; by > 0; by /= 2) {
            const V other = V(__shfl_xor_sync(0xffffffffu, value, by));
            take(other, __shfl_xor_sync(0xffffffffu, index, by));
        }
    }
};

__device__ inline C score(const T* x, const Position<3>& position, const Classes<3>& classes, int64 c) {
    return C(x[position.at[1] + c * classes.steps[1]]);
}
__device__ inline typename Held<S>::type label(
    const S* target, const Position<3>& position, const Classes<3>& classes, int64 c) {
    return typename Held<S>::type(target[position.at[2] + c * classes.steps[2]]);
}

// Whether fewer than k classes come before the own one: score higher, or as high with a lower number.
__device__ inline void store_hit(
    const Position<3>& position, const Classes<3>& classes, const T* x, int64 own, int64 k, L* results) {
    const C limit = own >= 0 ? score(x, position, classes, own) : nan();
    int before = 0;
    for (int64 c = threadIdx.x; c < position.count; c += blockDim.x) {
        const C value = score(x, position, classes, c);
        before += value > limit || (value == limit && c < own);
    }
    before = warp_sum(before, blockDim.x);
    if (!position.inside || threadIdx.x > 0) return;
    const bool hit = before < k && !is_nan(limit);
    results[position.at[0]] = L(own < 0 ? nan() : hit ? C(1) : C(0));
}

extern "C" __global__ void __launch_bounds__(256)
    in_top_k_of_ids(Walk<3> walk, Classes<3> classes, const T* x, const S* target, L* results, int64 k) {
    const Position<3> position(walk, classes);
    const int64 own = position.inside ? position.id(target[position.at[2]]) : -1;
    store_hit(position, classes, x, own, k, results);
}

extern "C" __global__ void __launch_bounds__(256)
    in_top_k_of_rows(Walk<3> walk, Classes<3> classes, const T* x, const S* target, L* results, int64 k) {
    const Position<3> position(walk, classes);
    Best<typename Held<S>::type> best = {0, -1};
    for (int64 c = threadIdx.x; c < position.count; c += blockDim.x) best.take(label(target, position, classes, c), c);
    best.share();
    store_hit(position, classes, x, best.index, k, results);
}

// Labels among the k highest scores, divided by k, or with `recall` by the number of labels.
extern "C" __global__ void __launch_bounds__(256, 4)
    hits_at_k(Walk<3> walk, Classes<3> classes, const T* x, const S* target, L* results, int64 k, bool recall) {
    const Position<3> position(walk, classes);
    int labels = 0, hits = 0;
    for (int64 c = threadIdx.x; c < position.count; c += blockDim.x)
        labels += label(target, position, classes, c) > 0;
    labels = warp_sum(labels, blockDim.x);
    // One after the other: the best of those behind the last one.
    Best<C> last = {infinity(), -1};
    for (int64 round = 0; round < min(k, classes.count); ++round) {
        Best<C> best = {C(0), -1};
        for (int64 c = threadIdx.x; c < position.count; c += blockDim.x) {
            const C value = score(x, position, classes, c);
            if (value < last.value || (value == last.value && c > last.index)) best.take(value, c);
        }
        best.share();
        if (best.index < 0) continue; // the rest is NaN; other teams of the warp may go on
        hits += label(target, position, classes, best.index) > 0;
        last = best;
    }
    const C among = recall ? C(labels > 0 ? labels : 1) : C(k);
    if (position.inside && threadIdx.x == 0) results[position.at[0]] = L(C(hits) / among);
}
