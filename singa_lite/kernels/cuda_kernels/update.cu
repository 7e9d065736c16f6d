// Optimizer updates, in place; a step's numbers are worked out by one thread beforehand, in double precision.
#include "update.cuh"

extern "C" __global__ void begin_update(
    const double* rate, int64* count, Step* step, double lr_mult, double decoupled_decay, double beta_1,
    double beta_2) {
    begin(rate, count, step, lr_mult, decoupled_decay, beta_1, beta_2);
}

extern "C" __global__ void sgd_plain(
    Walk<2> walk, const T* gradient, const Step* step, T* value, double weight_decay) {
    const Step s = *step;
    if (s.is_none()) return;
    map(walk, SgdPlain{s, C(weight_decay)}, both(value), in(gradient));
}

extern "C" __global__ void sgd_momentum(
    Walk<3> walk, const T* gradient, const Step* step, T* value, T* velocity, double weight_decay, double momentum,
    double dampening, int nesterov) {
    const Step s = *step;
    if (s.is_none()) return;
    const SgdMomentum rule{s, C(weight_decay), C(momentum), C(1.0 - dampening), nesterov};
    map(walk, rule, both(value), both(velocity), in(gradient));
}

extern "C" __global__ void rms_prop(
    Walk<3> walk, const T* gradient, const Step* step, T* value, T* square_average, double weight_decay, double rho,
    double epsilon) {
    const Step s = *step;
    if (s.is_none()) return;
    const RmsProp rule{s, C(weight_decay), C(rho), C(1.0 - rho), C(epsilon)};
    map(walk, rule, both(value), both(square_average), in(gradient));
}

extern "C" __global__ void ada_grad(
    Walk<3> walk, const T* gradient, const Step* step, T* value, T* square_sum, double weight_decay, double epsilon) {
    const Step s = *step;
    if (s.is_none()) return;
    map(walk, AdaGrad{s, C(weight_decay), C(epsilon)}, both(value), both(square_sum), in(gradient));
}

extern "C" __global__ void adam(
    Walk<4> walk, const T* gradient, const Step* step, T* value, T* first_moment, T* second_moment, double weight_decay,
    double beta_1, double beta_2, double epsilon) {
    const Step s = *step;
    if (s.is_none()) return;
    const Adam rule{s, C(weight_decay), C(beta_1), C(1.0 - beta_1), C(beta_2), C(1.0 - beta_2), C(epsilon)};
    map(walk, rule, both(value), both(first_moment), both(second_moment), in(gradient));
}

extern "C" __global__ void ams_grad(
    Walk<5> walk, const T* gradient, const Step* step, T* value, T* first_moment, T* second_moment,
    T* max_second_moment, double weight_decay, double beta_1, double beta_2, double epsilon) {
    const Step s = *step;
    if (s.is_none()) return;
    const Adam rule{s, C(weight_decay), C(beta_1), C(1.0 - beta_1), C(beta_2), C(1.0 - beta_2), C(epsilon)};
    map(walk, rule, both(value), both(first_moment), both(second_moment), both(max_second_moment), in(gradient));
}

extern "C" __global__ void lion(
    Walk<3> walk, const T* gradient, const Step* step, T* value, T* momentum, double beta_1, double beta_2) {
    const Step s = *step;
    if (s.is_none()) return;
    const Lion rule{s, C(beta_1), C(1.0 - beta_1), C(beta_2), C(1.0 - beta_2)};
    map(walk, rule, both(value), both(momentum), in(gradient));
}

extern "C" __global__ void add_scaled(Walk<2> walk, const T* x, T* y, double alpha) {
    const C factor = C(alpha);
    map(walk, [=](C& y, C x) { y += factor * x; }, both(y), in(x));
}

extern "C" __global__ void clip_elements(const __grid_constant__ Walk<1> walk, T* y, double threshold) {
    const C bound = C(threshold);
    map(walk, [=](C& y) { y = y < -bound ? -bound : y > bound ? bound : y; }, both(y));
}
