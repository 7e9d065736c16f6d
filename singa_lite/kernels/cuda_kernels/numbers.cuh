// Element types. T: the tensors' type, which source.py puts before the source; arithmetic is done in C.
#pragma once

typedef long long int64;
typedef unsigned long long uint64;

// float32 for float32 and the two half types, float64 for float64.
template <typename V> struct Computed { typedef float type; };
template <> struct Computed<double> { typedef double type; };
typedef Computed<T>::type C;

// The type that an operand of type V is handed to functors in: integers stay what they are.
template <typename V> struct Held { typedef V type; };
#ifdef WITH_HALF
template <> struct Held<__half> { typedef float type; };
template <> struct Held<__nv_bfloat16> { typedef float type; };
#endif

__device__ inline bool is_nan(float x) { return x != x; }
__device__ inline bool is_nan(double x) { return x != x; }

// a * b as a number of its own: a plain product is not rounded before it is added to something.
__device__ inline float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double rounded_product(double a, double b) { return __dmul_rn(a, b); }

// NVRTC has no header with the constant, and warns where one overflows.
__device__ inline C infinity() { return -log(C(0)); }

// For each index below `count`, of all threads of a grid, whatever their number.
#define EACH(Index, i, count)                                                       \
    for (Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x; i < (Index)(count); \
         i += (Index)gridDim.x * blockDim.x)
