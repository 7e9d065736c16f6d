// Random numbers by counter: uniform ones are NumPy's, normal ones are not.
#include "philox.cuh"

extern "C" __global__ void draw_key(uint64* state, int64 state_step, uint64* key, int64 key_step) {
    for (int word = 0; word < 3; ++word) key[word * key_step] = state[word * state_step];
    ++state[2 * state_step];
}

// A number of float32 for each element, whatever its type.
extern "C" __global__ void dropout(Walk<3> walk, const T* x, const uint64* key, int64 key_step, T* y, double p) {
    const float least = float(p);
    const C kept = C(1 - p);
    auto choose = [=](float number, C& y, C x) { y = number >= least ? x / kept : C(0); };
    draw<float>(walk, key_at(key, key_step), choose, out(y), in(x));
}

// Two roundings, as NumPy's, not one of a fused addition. largest: the last number below the upper bound.
extern "C" __global__ void uniform(Walk<2> walk, const uint64* key, int64 key_step, T* y, double low, double width,
                                   T largest) {
    const C from = C(low), by = C(width), most = C(largest);
    auto emit = [=](C number, C& y) {
        const C value = C(T(rounded_product(number, by) + from));
        y = value < most ? value : most;
    };
    draw<C>(walk, key_at(key, key_step), emit, out(y));
}

extern "C" __global__ void normal(Walk<2> walk, const uint64* key, int64 key_step, T* y, double mean, double std) {
    const C from = C(mean), by = C(std);
    draw<Normal<C>>(walk, key_at(key, key_step), [=](Normal<C> number, C& y) { y = from + by * number.value; }, out(y));
}

// By the inverse of the cumulative distribution, between its values at -2 and 2, whose difference is `share`.
extern "C" __global__ void truncated_normal(Walk<2> walk, const uint64* key, int64 key_step, T* y, double mean,
                                            double std) {
    const C from = C(mean), by = C(std), share = C(0.95449973610364158), root = C(1.4142135623730951);
    auto emit = [=](C number, C& y) {
        const C value = root * erfinv(share * (2 * number - 1));
        y = from + by * max(C(-2), min(value, C(2)));
    };
    draw<C>(walk, key_at(key, key_step), emit, out(y));
}
