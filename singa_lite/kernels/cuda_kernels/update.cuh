// Optimizer updates element by element: what a step has in one number for all elements, and each rule as a functor.
#pragma once
#include "map.cuh"

// What is one number for all elements. As in update.py.
struct Step {
    C rate;       // by which the step is multiplied
    C kept;       // of the value under decoupled decay
    C correction; // by which the root of Adam's second moment is divided
    C is_first;   // 1 at a parameter's first update, else 0

    // At a rate that is NaN nothing is updated.
    __device__ inline bool is_none() const { return rate != rate; }
};

// count becomes t. Adam's numbers; for other kinds the betas are 0, which corrects nothing.
__device__ inline void begin(
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

struct SgdPlain {
    Step s;
    C decay;
    __device__ inline void operator()(C& value, C g) const { value -= s.rate * decayed(g, value, decay); }
};

// The first velocity is the gradient, whatever the velocity held.
struct SgdMomentum {
    Step s;
    C decay, inertia, share;
    int nesterov;
    __device__ inline void operator()(C& value, C& velocity, C g) const {
        g = decayed(g, value, decay);
        velocity = s.is_first != C(0) ? g : inertia * velocity + share * g;
        value -= s.rate * (nesterov ? g + inertia * velocity : velocity);
    }
};

struct RmsProp {
    Step s;
    C decay, kept, share, least;
    __device__ inline void operator()(C& value, C& average, C g) const {
        g = decayed(g, value, decay);
        average = kept * average + share * (g * g);
        value -= s.rate * (g / (sqrt(average) + least));
    }
};

struct AdaGrad {
    Step s;
    C decay, least;
    __device__ inline void operator()(C& value, C& sum, C g) const {
        g = decayed(g, value, decay);
        sum += g * g;
        value -= s.rate * (g / (sqrt(sum) + least));
    }
};

struct Adam {
    Step s;
    C decay, kept_1, share_1, kept_2, share_2, least;
    __device__ inline void moments(C& value, C& m, C& v, C g) const {
        value *= s.kept;
        g = decayed(g, value, decay);
        m = kept_1 * m + share_1 * g;
        v = kept_2 * v + share_2 * (g * g);
    }
    __device__ inline void move(C& value, C m, C v) const { value -= s.rate * (m / (sqrt(v) / s.correction + least)); }
    __device__ inline void operator()(C& value, C& m, C& v, C g) const {
        moments(value, m, v, g);
        move(value, m, v);
    }
    // largest: of all second moments so far; NaN wins.
    __device__ inline void operator()(C& value, C& m, C& v, C& largest, C g) const {
        moments(value, m, v, g);
        largest = largest > v || largest != largest ? largest : v;
        move(value, m, largest);
    }
};

struct Lion {
    Step s;
    C kept_1, share_1, kept_2, share_2;
    __device__ inline void operator()(C& value, C& momentum, C g) const {
        const C step = kept_1 * momentum + share_1 * g;
        const C sign = step != step ? step : C((step > C(0)) - (step < C(0)));
        value = value * s.kept - s.rate * sign;
        momentum = kept_2 * momentum + share_2 * g;
    }
};
