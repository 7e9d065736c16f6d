// Copies between any strides, types and places, and one value everywhere. S: x's type, T: y's.
#include "map.cuh"

extern "C" __global__ void copy(Walk<2> walk, const S* x, T* y) {
    map(walk, [](auto& y, auto x) { y = static_cast<typename Held<T>::type>(x); }, out(y), in(x));
}

extern "C" __global__ void fill(const __grid_constant__ Walk<1> walk, T* y, T value) {
    const Held<T>::type wanted = value;
    map(walk, [=](auto& y) { y = wanted; }, out(y));
}

// The walk has negative strides of x along the axes that turn round. last: the offset of the element that comes first.
extern "C" __global__ void flip(Walk<2> walk, const T* x, T* y, int64 last) {
    map(walk, [](auto& y, auto x) { y = x; }, out(y), in(x + last));
}

// NaN, or 0 of a type without it.
template <typename V> __device__ inline V nothing() { return V(0); }
template <> __device__ inline float nothing<float>() { return float(infinity() - infinity()); }
template <> __device__ inline double nothing<double>() { return double(infinity() - infinity()); }

// The walk's part of a tensor begins `position` steps from the tensor's beginning, at most `most`.
extern "C" __global__ void read_at(Walk<2> walk, const T* x, T* y, const int64* position, int64 step, int64 most) {
    const int64 at = *position;
    const bool inside = at >= 0 && at <= most;
    const T* part = inside ? x + at * step : x;
    map(walk, [=](auto& y, auto x) { y = inside ? x : nothing<Held<T>::type>(); }, out(y), in(part));
}
extern "C" __global__ void write_at(Walk<2> walk, const T* x, T* y, const int64* position, int64 step, int64 most) {
    const int64 at = *position;
    if (at >= 0 && at <= most) map(walk, [](auto& y, auto x) { y = x; }, out(y + at * step), in(x));
}
