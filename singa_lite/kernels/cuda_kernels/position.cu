// Rotary positions of tensors in C order without gaps: a thread for each pair.
#include "numbers.cuh"

// x, y: (outer, time, inner, 2 * half); table: (2, time, half).
extern "C" __global__ void rotary(const T* x, const T* table, T* y, int64 pairs, int64 time, int64 inner, int64 half,
                                  double sign) {
    EACH(int64, i, pairs) {
        const int64 row = i / half, feature = i % half, t = row / inner % time;
        const int64 near = row * 2 * half + feature, far = near + half;
        const C c = C(table[t * half + feature]), s = C(sign) * C(table[(time + t) * half + feature]);
        const C a = C(x[near]), b = C(x[far]);
        y[near] = T(a * c - b * s);
        y[far] = T(b * c + a * s);
    }
}
