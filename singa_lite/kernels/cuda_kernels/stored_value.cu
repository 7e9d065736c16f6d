// Parameters in bfloat16: rounded by chance, or to nearest with what is left over in 8 bits. The bits of a float32 are a
// whole number here: its upper half, rounded, and a signed byte below it. T: float32; `value` are bits of bfloat16.
#include "philox.cuh"

#define INFINITE 0x7f800000u
#define QUIET_NAN 0x7fc0
// Odd constants that spread bits: the golden ratio's, and one of MurmurHash3's finalizer; and what a place counts as.
#define SPREAD 0x9E3779B1u
#define MIX 0x85EBCA6Bu
#define PLACE 0x9E3779B9u

typedef unsigned short Value;

__device__ inline bool is_nan_of(unsigned bits) { return (bits & 0x7fffffffu) > INFINITE; }

__device__ inline float with_error(Value value, signed char error) {
    return __uint_as_float(((unsigned)value << 16) + ((unsigned)(int)error << 8));
}

// The walk's first operand lies without gaps in the order of `value`: its offsets are places in memory.
extern "C" __global__ void round_by_chance(
    Walk<3> walk, const T* x, const int64* count, int64 step, Value* value, int64 start) {
    const Key key = {(uint64)count[step], (uint64)count[2 * step], (uint64)count[0]};
    const unsigned first = (unsigned)(philox(key, 0).v[0] >> 32) + (unsigned)start * PLACE;
    EACH(int64, i, walk.count) {
        int64 at[3];
        far_offsets(walk, i, at);
        const unsigned bits = __float_as_uint(x[at[2]]);
        unsigned chance = (bits + first + (unsigned)at[0] * PLACE) * SPREAD;
        chance = (chance ^ (chance >> 15)) * MIX;
        value[at[1]] = (Value)(is_nan_of(bits) ? QUIET_NAN : (bits + (chance >> 16)) >> 16);
    }
}

extern "C" __global__ void split_error(Walk<3> walk, const T* x, Value* value, signed char* error) {
    auto split = [](Value& value, signed char& error, float x) {
        const unsigned given = __float_as_uint(x), bits = given + 0x7f + ((given >> 8) & 1);
        value = (Value)(is_nan_of(given) ? QUIET_NAN : ((bits & ~0xffu) + 0x8000) >> 16);
        error = (signed char)(is_nan_of(given) ? 0 : bits >> 8);
    };
    map(walk, split, out(value), out(error), in(x));
}

extern "C" __global__ void add_error(Walk<3> walk, const Value* value, const signed char* error, T* y) {
    map(walk, [](C& y, Value value, signed char error) { y = with_error(value, error); }, out(y), in(value), in(error));
}

extern "C" __global__ void add_stored(
    Walk<3> walk, const Value* value, const signed char* error, T* y, double given) {
    const float alpha = float(given);
    auto add = [=](C& y, Value value, signed char error) { y += rounded_product(alpha, with_error(value, error)); };
    map(walk, add, both(y), in(value), in(error));
}
