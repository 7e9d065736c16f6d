// Random numbers by counter, the same ones as NumPy's.
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
