// Cross entropy of softmax. Each position is done by a team of threads, operands in the order of the walk: the result,
// x or p, the target, p or dlosses.
#include "positions.cuh"

// Each thread's share of a position's classes.
#define CLASSES(c, position) for (int64 c = threadIdx.x; c < position.count; c += blockDim.x)

// x as e**(x - top) / sum, which cannot overflow.
struct Softmax {
    const T* x;
    int64 step;
    C top, sum;

    __device__ inline C above(int64 c) const { return C(x[c * step]) - top; }
    __device__ inline void store(T* p, int64 p_step, const Position<4>& position) const {
        CLASSES(c, position) p[c * p_step] = T(exp(above(c)) / sum);
    }
};

extern "C" __global__ void __launch_bounds__(256)
    cross_entropy_of_ids(Walk<4> walk, Classes<4> classes, const T* x, const S* target, L* losses, T* p) {
    const Position<4> position(walk, classes);
    Softmax softmax = {x + position.at[1], classes.steps[1], -infinity(), C(0)};
    const int64 id = position.inside ? position.id(target[position.at[2]]) : -1;
    const C own = id >= 0 ? C(softmax.x[id * softmax.step]) : nan();
    CLASSES(c, position) softmax.top = Largest<C>()(softmax.top, C(softmax.x[c * softmax.step]));
    softmax.top = team_max(softmax.top);
    CLASSES(c, position) softmax.sum += exp(softmax.above(c));
    softmax.sum = team_sum(softmax.sum);
    softmax.store(p + position.at[3], classes.steps[3], position);
    if (position.inside && threadIdx.x == 0) losses[position.at[0]] = L(log(softmax.sum) - (own - softmax.top));
}

extern "C" __global__ void __launch_bounds__(256)
    cross_entropy_of_rows(Walk<4> walk, Classes<4> classes, const T* x, const S* target, L* losses, T* p) {
    const Position<4> position(walk, classes);
    Softmax softmax = {x + position.at[1], classes.steps[1], -infinity(), C(0)};
    const S* weights = target + position.at[2];
    C weight = C(0), expected = C(0);
    CLASSES(c, position) {
        softmax.top = Largest<C>()(softmax.top, C(softmax.x[c * softmax.step]));
        weight += C(weights[c * classes.steps[2]]);
    }
    softmax.top = team_max(softmax.top);
    weight = team_sum(weight);
    CLASSES(c, position) {
        const C above = softmax.above(c);
        softmax.sum += exp(above);
        expected += C(weights[c * classes.steps[2]]) / weight * above;
    }
    softmax.sum = team_sum(softmax.sum);
    expected = team_sum(expected);
    softmax.store(p + position.at[3], classes.steps[3], position);
    if (position.inside && threadIdx.x == 0) losses[position.at[0]] = L(log(softmax.sum) - expected);
}

extern "C" __global__ void __launch_bounds__(256) cross_entropy_of_ids_derivative(
    Walk<4> walk, Classes<4> classes, const T* dlosses, const T* p, const S* target, T* dx, double positions) {
    const Position<4> position(walk, classes);
    if (!position.inside) return;
    const int64 id = position.id(target[position.at[2]]);
    const C factor = id >= 0 ? C(dlosses[position.at[3]]) / C(positions) : nan();
    CLASSES(c, position) {
        const C own = C(p[position.at[1] + c * classes.steps[1]]);
        const C slope = factor == C(0) ? C(0) : factor * (own - (c == id ? C(1) : C(0)));  // where p is NaN too
        dx[position.at[0] + c * classes.steps[0]] = T(slope);
    }
}

extern "C" __global__ void __launch_bounds__(256) cross_entropy_of_rows_derivative(
    Walk<4> walk, Classes<4> classes, const T* dlosses, const T* p, const S* target, T* dx, double positions) {
    const Position<4> position(walk, classes);
    const S* weights = target + position.at[2];
    C weight = C(0);
    CLASSES(c, position) weight += C(weights[c * classes.steps[2]]);
    weight = team_sum(weight);
    const C factor = position.inside ? C(dlosses[position.at[3]]) / C(positions) : C(0);
    CLASSES(c, position) {
        const C own = C(p[position.at[1] + c * classes.steps[1]]);
        const C slope = factor == C(0) ? C(0) : factor * (own - C(weights[c * classes.steps[2]]) / weight);
        dx[position.at[0] + c * classes.steps[0]] = T(slope);
    }
}
