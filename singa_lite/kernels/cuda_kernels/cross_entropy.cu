// Cross entropy of softmax. Each position is done by a team of threads, operands in the order of the walk: the result,
// x or p, the target, p or dlosses. L: the type of losses, and of dx.
#include "lines.cuh"
#include "positions.cuh"

// f(elements...) of a thread's share of a position's classes, steps[n] apart in operand n; 1 where a block does a position.
template <class F, class... Ops>
__device__ inline void
each_class(const Position<4>& position, const int64 (&steps)[sizeof...(Ops)], F f, Ops... ops) {
    if (blockDim.x > 32) return along_row((int)position.count, f, ops...);
    for (int c = threadIdx.x; c < (int)position.count; c += blockDim.x) {
        int64 at[sizeof...(Ops)];
#pragma unroll
        for (int n = 0; n < (int)sizeof...(Ops); ++n) at[n] = c * steps[n];
        at_one(at, f, ops...);
    }
}

// An operand of which each element is its own index; its step is 1.
struct Index {
    typedef char type;
    const char* p;
};
template <> struct Elements<Index> {
    int64 v[VECTOR];

    __device__ inline void load(Index, int64 at, bool) {
#pragma unroll
        for (int k = 0; k < VECTOR; ++k) v[k] = at + k;
    }
    __device__ inline void load_one(Index, int64 at) { v[0] = at; }
    __device__ inline void store(Index, int64) {}
    __device__ inline void store_one(Index, int64) {}
};

// The largest number and the sum of e**(number - top), in one pass. NaN and an infinite top make the sum NaN.
struct Powers {
    C top, sum;

    __device__ inline void add(C x) {
        if (x > top) {
            sum *= exp(top - x);
            top = x;
        }
        sum += x == top ? C(1) : exp(x - top); // minus infinity less itself would be NaN, though a larger one may follow
    }
    __device__ inline void add_team() {
        const C own = top;
        top = team_max(top);
        sum = team_sum(sum * exp(own - top));
    }
};

extern "C" __global__ void __launch_bounds__(1024, 1)
    cross_entropy_of_ids(Walk<4> walk, Classes<4> classes, const T* x, const S* target, L* losses, T* p) {
    const Position<4> position(walk, classes);
    const auto scores = in(x + position.at[1]);
    const int64 id = position.inside ? position.id(target[position.at[2]]) : -1;
    const C own = id >= 0 ? C(scores.p[id * classes.steps[1]]) : nan();
    Powers powers = {-infinity(), C(0)};
    each_class(position, {classes.steps[1]}, [&](C x) { powers.add(x); }, scores);
    powers.add_team();
    const C top = powers.top, factor = C(1) / powers.sum;
    each_class(
        position, {classes.steps[3], classes.steps[1]}, [=](C& p, C x) { p = exp(x - top) * factor; },
        out(p + position.at[3]), scores);
    if (position.inside && threadIdx.x == 0) losses[position.at[0]] = L(log(powers.sum) - (own - top));
}

extern "C" __global__ void __launch_bounds__(1024)
    cross_entropy_of_rows(Walk<4> walk, Classes<4> classes, const T* x, const S* target, L* losses, T* p) {
    const Position<4> position(walk, classes);
    const auto scores = in(x + position.at[1]);
    const auto weights = in(target + position.at[2]);
    Powers powers = {-infinity(), C(0)};
    C weight = C(0), expected = C(0);
    auto add = [&](C x, typename Held<S>::type share) {
        powers.add(x);
        weight += C(share);
    };
    each_class(position, {classes.steps[1], classes.steps[2]}, add, scores, weights);
    powers.add_team();
    weight = team_sum(weight);
    const C top = powers.top, factor = C(1) / powers.sum;
    auto finish = [&](C& p, C x, typename Held<S>::type share) {
        p = exp(x - top) * factor;
        expected += C(share) / weight * (x - top);
    };
    each_class(
        position, {classes.steps[3], classes.steps[1], classes.steps[2]}, finish, out(p + position.at[3]), scores,
        weights);
    expected = team_sum(expected);
    if (position.inside && threadIdx.x == 0) losses[position.at[0]] = L(log(powers.sum) - expected);
}

extern "C" __global__ void __launch_bounds__(1024) cross_entropy_of_ids_derivative(
    Walk<4> walk, Classes<4> classes, const T* dlosses, const T* p, const S* target, L* dx, double positions) {
    const Position<4> position(walk, classes);
    if (!position.inside) return;
    const int64 id = position.id(target[position.at[2]]);
    const C factor = id >= 0 ? C(dlosses[position.at[3]]) / C(positions) : nan();
    each_class(
        position, {classes.steps[0], classes.steps[1], 1},
        [=](auto& dx, C p, int64 c) {
            dx = factor == C(0) ? C(0) : factor * (p - (c == id ? C(1) : C(0))); // where p is NaN too
        },
        out(dx + position.at[0]), in(p + position.at[1]), Index());
}

extern "C" __global__ void __launch_bounds__(1024) cross_entropy_of_rows_derivative(
    Walk<4> walk, Classes<4> classes, const T* dlosses, const T* p, const S* target, L* dx, double positions) {
    const Position<4> position(walk, classes);
    const auto weights = in(target + position.at[2]);
    C weight = C(0);
    each_class(position, {classes.steps[2]}, [&](typename Held<S>::type share) { weight += C(share); }, weights);
    weight = team_sum(weight);
    const C factor = position.inside ? C(dlosses[position.at[3]]) / C(positions) : C(0);
    each_class(
        position, {classes.steps[0], classes.steps[1], classes.steps[2]},
        [=](auto& dx, C p, typename Held<S>::type share) {
            dx = factor == C(0) ? C(0) : factor * (p - C(share) / weight);
        },
        out(dx + position.at[0]), in(p + position.at[1]), weights);
}
