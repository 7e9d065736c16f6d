// Losses that are means over all elements of a sample, and losses element by element. T: the scores' type, S: the
// target's, L: that of the results.
#include "map.cuh"
#include "reduce.cuh"

// Samples are as far apart in x and target as the steps say; chunks of their elements give a number each.
struct Samples {
    int64 count, x_step, target_step, result_step, chunk;
};

// alpha * sums of f(x, t) over each chunk of each sample; the walk's operands are x and the target of one sample.
template <class F>
__device__ inline void sum_of_samples(
    const Walk<2>& walk, const Samples& samples, const T* x, const S* target, L* results, double alpha, F f) {
    const int64 sample = (int64)blockIdx.x * blockDim.y + threadIdx.y;
    const bool inside = sample < samples.count;
    const int64 begin = blockIdx.y * samples.chunk, end = inside ? min(begin + samples.chunk, walk.count) : 0;
    x += inside ? sample * samples.x_step : 0;
    target += inside ? sample * samples.target_step : 0;
    C sum = C(0);
#pragma unroll 4
    for (int64 i = begin + threadIdx.x; i < end; i += blockDim.x) {
        int64 at[2];
        offsets(walk, (unsigned)i, at);
        sum += f(C(x[at[0]]), C(target[at[1]]));
    }
    sum = team_sum(sum);
    if (inside && threadIdx.x == 0) results[sample * samples.result_step + blockIdx.y] = L(C(alpha) * sum);
}

extern "C" __global__ void __launch_bounds__(256) sigmoid_cross_entropy(
    Walk<2> walk, Samples samples, const T* x, const S* target, L* results, double alpha) {
    sum_of_samples(walk, samples, x, target, results, alpha, [](C x, C t) {
        return (x > C(0) ? x : C(0)) - x * t + log1p(exp(-fabs(x)));
    });
}

// Both branches in one, by q = min(|r|, delta).
extern "C" __global__ void __launch_bounds__(256)
    huber(Walk<2> walk, Samples samples, const T* x, const S* target, L* results, double alpha, double delta) {
    const C limit = C(delta);
    sum_of_samples(walk, samples, x, target, results, alpha, [=](C x, C t) {
        const C r = fabs(x - t), q = r < limit ? r : limit;
        return C(0.5) * q * (C(2) * r - q);
    });
}

extern "C" __global__ void sigmoid_cross_entropy_derivative(
    Walk<4> walk, const T* x, const S* target, const T* dlosses, T* dx, double elements) {
    const C share = C(1) / C(elements);
    map(
        walk, [=](C& dx, C x, Held<S>::type t, C dloss) { dx = dloss * share * (C(1) / (C(1) + exp(-x)) - C(t)); },
        out(dx), in(x), in(target), in(dlosses));
}

extern "C" __global__ void huber_derivative(
    Walk<4> walk, const T* x, const S* target, const T* dlosses, T* dx, double elements, double delta) {
    const C share = C(1) / C(elements), limit = C(delta);
    map(
        walk,
        [=](C& dx, C x, Held<S>::type t, C dloss) {
            const C r = x - C(t);
            dx = dloss * share * (r > limit ? limit : r < -limit ? -limit : r);
        },
        out(dx), in(x), in(target), in(dlosses));
}

extern "C" __global__ void squared_error(Walk<3> walk, const T* x, const S* target, T* y) {
    map(
        walk,
        [](C& y, C x, Held<S>::type t) {
            const C r = x - C(t);
            y = C(0.5) * r * r;
        },
        out(y), in(x), in(target));
}

extern "C" __global__ void squared_error_derivative(Walk<4> walk, const T* dy, const T* x, const S* target, T* dx) {
    map(
        walk, [](C& dx, C dy, C x, Held<S>::type t) { dx = dy * (x - C(t)); }, out(dx), in(dy), in(x), in(target));
}
