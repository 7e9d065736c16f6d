// Optimizer updates, in place; a step's numbers are worked out by one thread beforehand, in double precision.
#include "map.cuh"

// What is one number for all elements. As in update.py.
struct Step {
    C rate;       // by which the step is multiplied
    C kept;       // of the value under decoupled decay
    C correction; // by which the root of Adam's second moment is divided
    C is_first;   // 1 at a parameter's first update, else 0
};

// count becomes t. Adam's numbers; for other kinds the betas are 0, which corrects nothing.
extern "C" __global__ void begin_update(
    const double* rate, int64* count, Step* step, double lr_mult, double decoupled_decay, double beta_1,
    double beta_2) {
    step->rate = C(*rate);
    if (*rate != *rate) return; // NaN: no update, which does not count
    const int64 t = *count + 1;
    const double lr = *rate * lr_mult;
    step->rate = C(lr / (1.0 - pow(beta_1, (double)t)));
    step->kept = C(1.0 - lr * decoupled_decay);
    step->correction = C(sqrt(1.0 - pow(beta_2, (double)t)));
    step->is_first = C(t == 1);
    *count = t;
}

// Without decay the value is left out: 0 * infinity would be NaN.
__device__ inline C decayed(C g, C value, C decay) { return decay == C(0) ? g : g + decay * value; }

extern "C" __global__ void sgd_plain(
    Walk<2> walk, const T* gradient, const Step* step, T* value, double weight_decay) {
    const Step s = *step;
    if (s.rate != s.rate) return;
    const C decay = C(weight_decay);
    map(walk, [=](C& value, C g) { value -= s.rate * decayed(g, value, decay); }, both(value), in(gradient));
}

// The first velocity is the gradient, whatever the velocity held.
extern "C" __global__ void sgd_momentum(
    Walk<3> walk, const T* gradient, const Step* step, T* value, T* velocity, double weight_decay, double momentum,
    double dampening, int nesterov) {
    const Step s = *step;
    if (s.rate != s.rate) return;
    const C decay = C(weight_decay), inertia = C(momentum), share = C(1.0 - dampening);
    map(
        walk,
        [=](C& value, C& velocity, C g) {
            g = decayed(g, value, decay);
            velocity = s.is_first != C(0) ? g : inertia * velocity + share * g;
            value -= s.rate * (nesterov ? g + inertia * velocity : velocity);
        },
        both(value), both(velocity), in(gradient));
}

extern "C" __global__ void rms_prop(
    Walk<3> walk, const T* gradient, const Step* step, T* value, T* square_average, double weight_decay, double rho,
    double epsilon) {
    const Step s = *step;
    if (s.rate != s.rate) return;
    const C decay = C(weight_decay), kept = C(rho), share = C(1.0 - rho), least = C(epsilon);
    map(
        walk,
        [=](C& value, C& average, C g) {
            g = decayed(g, value, decay);
            average = kept * average + share * (g * g);
            value -= s.rate * (g / (sqrt(average) + least));
        },
        both(value), both(square_average), in(gradient));
}

extern "C" __global__ void ada_grad(
    Walk<3> walk, const T* gradient, const Step* step, T* value, T* square_sum, double weight_decay, double epsilon) {
    const Step s = *step;
    if (s.rate != s.rate) return;
    const C decay = C(weight_decay), least = C(epsilon);
    map(
        walk,
        [=](C& value, C& sum, C g) {
            g = decayed(g, value, decay);
            sum += g * g;
            value -= s.rate * (g / (sqrt(sum) + least));
        },
        both(value), both(square_sum), in(gradient));
}

extern "C" __global__ void adam(
    Walk<4> walk, const T* gradient, const Step* step, T* value, T* first_moment, T* second_moment, double weight_decay,
    double beta_1, double beta_2, double epsilon) {
    const Step s = *step;
    if (s.rate != s.rate) return;
    const C decay = C(weight_decay), least = C(epsilon);
    const C kept_1 = C(beta_1), share_1 = C(1.0 - beta_1), kept_2 = C(beta_2), share_2 = C(1.0 - beta_2);
    map(
        walk,
        [=](C& value, C& m, C& v, C g) {
            value *= s.kept;
            g = decayed(g, value, decay);
            m = kept_1 * m + share_1 * g;
            v = kept_2 * v + share_2 * (g * g);
            value -= s.rate * (m / (sqrt(v) / s.correction + least));
        },
        both(value), both(first_moment), both(second_moment), in(gradient));
}

extern "C" __global__ void add_scaled(Walk<2> walk, const T* x, T* y, double alpha) {
    const C factor = C(alpha);
    map(walk, [=](C& y, C x) { y += factor * x; }, both(y), in(x));
}

extern "C" __global__ void clip_elements(Walk<1> walk, T* y, double threshold) {
    const C bound = C(threshold);
    map(walk, [=](C& y) { y = y < -bound ? -bound : y > bound ? bound : y; }, both(y));
}
