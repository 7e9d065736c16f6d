// Runs CUDA C++ on the host, to prove kernels where there is no GPU: include this, then an unmodified source.
//
// One fiber for each CUDA thread of a block, blocks one after the other. Barriers of blocks and warps, shuffles,
// ballots, static and dynamic shared memory and atomics work as on a GPU; a barrier that some threads never reach is
// found and reported. Out of reach: real races, the rounding of fast intrinsics, inline PTX, tensor cores,
// asynchronous copies. Vector and half types are CUDA's own headers', which g++ understands.
//
// FLUSH_DENORMALS: they are 0 where a kernel reads or makes them, as CuPy has them (-ftz=true). Those of float64 too,
// which a GPU keeps: a processor knows one mode for both.
// NO_BARRIERS: the source has none, so that the threads are plain calls, forty times faster.
#pragma once
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#undef __shared__
#define __shared__ static
#undef __constant__
#define __constant__ static
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __forceinline__
#define __forceinline__ inline
#define DYNAMIC_SHARED(type, name) type* name = reinterpret_cast<type*>(cuda_on_host::block().dynamic.get())

using std::max;
using std::min;

namespace cuda_on_host {

const size_t STACK_BYTES = 64 << 10;
const int WARP = 32;
enum State { RUNS, AT_BLOCK_BARRIER, AT_WARP_BARRIER, DONE };

struct Thread {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    State state = RUNS;
    uint3 index;
    int number = 0;
    unsigned mask = 0;    // of the warp barrier at which it waits
    uint64_t offered = 0; // to a shuffle
};

struct Block {
    uint3 index;
    dim3 extent, grid;
    std::vector<Thread> threads;
    std::unique_ptr<char[]> dynamic;
    ucontext_t scheduler;
    std::vector<void*> filled; // shared memory that has been declared
    int current = 0, count = 0;
    void (*entry)(void*);
    void* argument;
};

inline Block& block() {
    static Block one;
    return one;
}
inline Thread& self() { return block().threads[block().current]; }

// ---- fibers; the address sanitizer wants to be told of every change of stacks

#ifdef __SANITIZE_ADDRESS__
inline void** scheduler_stack() {
    static void* known[2];
    return known;
}
inline void enter(Thread& thread) {
    void* fake;
    __sanitizer_start_switch_fiber(&fake, thread.stack.get(), STACK_BYTES);
    swapcontext(&block().scheduler, &thread.context);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
}
inline void leave(Thread& thread) {
    void* fake;
    void** known = scheduler_stack();
    __sanitizer_start_switch_fiber(thread.state == DONE ? nullptr : &fake, known[0], reinterpret_cast<size_t>(known[1]));
    swapcontext(&thread.context, &block().scheduler);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
}
inline void arrived() {
    const void* bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    scheduler_stack()[0] = const_cast<void*>(bottom);
    scheduler_stack()[1] = reinterpret_cast<void*>(size);
}
#else
inline void enter(Thread& thread) { swapcontext(&block().scheduler, &thread.context); }
inline void leave(Thread& thread) { swapcontext(&thread.context, &block().scheduler); }
inline void arrived() {}
#endif

inline void wait(State where) {
    Thread& thread = self();
    thread.state = where;
    leave(thread);
}
inline void begin() {
    arrived();
    block().entry(block().argument);
    wait(DONE);
}

// ---- which thread runs next: a GPU promises no order of warps, so each launch draws another one

// Random numbers, equal in every run. CUDA_ON_HOST_SEED: another sequence of them.
inline unsigned below(unsigned n) {
    static const char* asked = getenv("CUDA_ON_HOST_SEED");
    static uint64_t state = (asked ? strtoull(asked, nullptr, 10) : 0) * 2 + 0x9E3779B97F4A7C15u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)((state >> 32) * n >> 32);
}

// f(i) for all i below n, from any of them on, upwards or downwards.
template <class F> inline void in_any_order(int n, F f) {
    const int first = below(n), step = below(2) ? 1 : n - 1;
    for (int k = 0, i = first; k < n; k++, i = (i + step) % n) f(i);
}

// Let the threads of a warp go on whose masks name none that is still on its way there.
inline bool release(int low, int high) {
    Block& b = block();
    bool any = false;
    for (int i = low; i < high; i++) {
        if (b.threads[i].state != AT_WARP_BARRIER) continue;
        const unsigned mask = b.threads[i].mask;
        bool all = true;
        for (int j = low; j < high; j++) {
            const Thread& other = b.threads[j];
            const bool there = other.state == AT_WARP_BARRIER && other.mask == mask;
            if ((mask >> (j - low) & 1) && other.state != DONE && !there) all = false;
        }
        if (!all) continue;
        any = true;
        for (int j = low; j < high; j++)
            if ((mask >> (j - low) & 1) && b.threads[j].state == AT_WARP_BARRIER) b.threads[j].state = RUNS;
    }
    return any;
}

// Run a warp's threads from barrier to barrier of the warp, as far as they come without the block's others: what those
// have not read or written yet is seen to be missing. patient: never stop before that, else at any barrier.
inline bool run_warp(int low, int high, bool patient, int& live) {
    Block& b = block();
    bool progress = false;
    do {
        in_any_order(high - low, [&](int lane) {
            Thread& thread = b.threads[b.current = low + lane];
            if (thread.state != RUNS) return;
            enter(thread);
            progress = true;
            live -= thread.state == DONE;
        });
    } while (release(low, high) && (patient || below(4)));
    return progress;
}

inline void start_fibers() {
    Block& b = block();
    for (int i = 0; i < b.count; i++) {
        Thread& thread = b.threads[i];
        thread.state = RUNS;
        if (!thread.stack) thread.stack.reset(new char[STACK_BYTES]);
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = thread.stack.get();
        thread.context.uc_stack.ss_size = STACK_BYTES;
        thread.context.uc_link = nullptr;
        makecontext(&thread.context, begin, 0);
    }
}

inline void run_fibers() {
    Block& b = block();
    start_fibers();
    for (int live = b.count; live;) {
        bool progress = false;
        const bool patient = below(2);
        in_any_order((b.count + WARP - 1) / WARP, [&](int warp) {
            progress |= run_warp(warp * WARP, std::min((warp + 1) * WARP, b.count), patient, live);
        });
        int waiting = 0;
        for (int i = 0; i < b.count; i++) waiting += b.threads[i].state == AT_BLOCK_BARRIER;
        if (live && waiting == live) {
            for (int i = 0; i < b.count; i++)
                if (b.threads[i].state == AT_BLOCK_BARRIER) b.threads[i].state = RUNS;
        } else if (live && !progress) {
            throw std::runtime_error("threads of one block wait at different barriers");
        }
    }
}

// Shared memory holds garbage where a block begins. Called behind each declaration, see host_loader.py.
inline void fill_once(void* place, size_t bytes) {
    std::vector<void*>& filled = block().filled;
    if (std::find(filled.begin(), filled.end(), place) != filled.end()) return;
    filled.push_back(place);
    memset(place, 0xFF, bytes);
}

inline void run_calls() {
    Block& b = block();
    for (b.current = 0; b.current < b.count; b.current++) b.entry(b.argument);
}

template <class... A> struct Call {
    void (*kernel)(A...);
    std::tuple<A...> arguments;
    static void go(void* self) {
        Call* call = static_cast<Call*>(self);
        std::apply(call->kernel, call->arguments);
    }
};

// How this thread rounds while a kernel runs. Fibers are made in here and inherit it.
struct Rounding {
#ifdef FLUSH_DENORMALS
    const unsigned before = __builtin_ia32_stmxcsr();
    Rounding() { __builtin_ia32_ldmxcsr(before | 0x8040); } // results and operands
    ~Rounding() { __builtin_ia32_ldmxcsr(before); }
#endif
};

template <class... A, size_t... I>
void launch(void (*kernel)(A...), const unsigned* extents, size_t shared, void** given, std::index_sequence<I...>) {
    const Rounding rounding;
    Call<A...> call{kernel, {*static_cast<std::remove_const_t<A>*>(given[I])...}};
    Block& b = block();
    b.grid = dim3(extents[0], extents[1], extents[2]);
    b.extent = dim3(extents[3], extents[4], extents[5]);
    b.count = b.extent.x * b.extent.y * b.extent.z;
    if (b.count > 1024) throw std::runtime_error("a block has at most 1024 threads");
    if (b.grid.y > 65535 || b.grid.z > 65535) throw std::runtime_error("a grid has at most 65535 blocks in y and z");
    b.entry = &Call<A...>::go;
    b.argument = &call;
    b.dynamic.reset(new char[shared]); // no byte more: a sanitizer sees what lies behind
    if ((int)b.threads.size() < b.count) b.threads.resize(b.count);
    for (int i = 0; i < b.count; i++) {
        const unsigned x = b.extent.x, y = b.extent.y;
        b.threads[i].number = i;
        b.threads[i].index = make_uint3(i % x, i / x % y, i / (x * y));
    }
    for (unsigned z = 0; z < b.grid.z; z++)
        for (unsigned y = 0; y < b.grid.y; y++)
            for (unsigned x = 0; x < b.grid.x; x++) {
                b.index = make_uint3(x, y, z);
                b.filled.clear();
                memset(b.dynamic.get(), 0xFF, shared);
#ifdef NO_BARRIERS
                run_calls();
#else
                run_fibers();
#endif
            }
}

// extents: of the grid, then of a block. given: pointers to the arguments, as for cuLaunchKernel. 0 if all went well.
template <class... A> int run(void (*kernel)(A...), const unsigned* extents, size_t shared, void** given) {
    try {
        launch(kernel, extents, shared, given, std::index_sequence_for<A...>{});
        return 0;
    } catch (const std::exception& error) {
        fprintf(stderr, "cuda_on_host: %s\n", error.what());
        return 1;
    }
}

// Bytes of each argument, as many as `most` has room for; returns how many there are.
template <class... A> int argument_bytes(void (*)(A...), unsigned long* bytes, int most) {
    const unsigned long all[] = {sizeof(A)..., 0};
    for (int i = 0; i < (int)sizeof...(A) && i < most; i++) bytes[i] = all[i];
    return sizeof...(A);
}

inline void warp_barrier(unsigned mask) {
    self().mask = mask;
    wait(AT_WARP_BARRIER);
}

template <class V> V shuffle(unsigned mask, V value, int source) {
    static_assert(sizeof(V) <= 8, "a shuffle moves at most 8 bytes");
    Thread& thread = self();
    memcpy(&thread.offered, &value, sizeof value);
    warp_barrier(mask);
    V result;
    const int from = (thread.number & ~(WARP - 1)) + (source & (WARP - 1));
    memcpy(&result, &block().threads[from < block().count ? from : thread.number].offered, sizeof result);
    warp_barrier(mask);
    return result;
}
inline int lane() { return self().number & (WARP - 1); }

} // namespace cuda_on_host

#define threadIdx (cuda_on_host::self().index)
#define blockIdx (cuda_on_host::block().index)
#define blockDim (cuda_on_host::block().extent)
#define gridDim (cuda_on_host::block().grid)
#define __syncthreads() cuda_on_host::wait(cuda_on_host::AT_BLOCK_BARRIER)
inline void __syncwarp(unsigned mask = 0xffffffffu) { cuda_on_host::warp_barrier(mask); }
template <class V> V __shfl_sync(unsigned mask, V value, int source, int width = 32) {
    const int lane = cuda_on_host::lane();
    return cuda_on_host::shuffle(mask, value, (lane & ~(width - 1)) | (source & (width - 1)));
}
template <class V> V __shfl_down_sync(unsigned mask, V value, unsigned by, int width = 32) {
    const int lane = cuda_on_host::lane(), source = lane + (int)by;
    return cuda_on_host::shuffle(mask, value, (source & ~(width - 1)) == (lane & ~(width - 1)) ? source : lane);
}
template <class V> V __shfl_up_sync(unsigned mask, V value, unsigned by, int width = 32) {
    const int lane = cuda_on_host::lane(), source = lane - (int)by;
    return cuda_on_host::shuffle(mask, value, source >= 0 && (source & ~(width - 1)) == (lane & ~(width - 1)) ? source : lane);
}
template <class V> V __shfl_xor_sync(unsigned mask, V value, int by, int width = 32) {
    return cuda_on_host::shuffle(mask, value, cuda_on_host::lane() ^ by);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
    unsigned bits = 0;
    for (int i = 0; i < 32; i++) {
        const int vote = mask >> i & 1 ? cuda_on_host::shuffle(mask, predicate ? 1 : 0, i) : 0;
        bits |= (unsigned)vote << i;
    }
    return bits;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
template <class V> V atomicAdd(V* place, V value) {
    V old = *place;
    *place = old + value;
    return old;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline unsigned __float_as_uint(float x) {
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline float __uint_as_float(unsigned bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
template <class V> inline V rounded(V value) {
    asm("" : "+x"(value)); // out of the compiler's sight: no sum takes the product in unrounded
    return value;
}
inline float __fmul_rn(float a, float b) { return rounded(a * b); }
inline double __dmul_rn(double a, double b) { return rounded(a * b); }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float rsqrt(float x) { return 1 / sqrtf(x); }
inline double sinpi(double x) { return sin(x * 3.14159265358979324); }
inline double cospi(double x) { return cos(x * 3.14159265358979324); }
inline float sinpi(float x) { return (float)sinpi((double)x); }
inline float cospi(float x) { return (float)cospi((double)x); }
// By Newton's steps from 0, which do not pass the root.
inline double erfinv(double y) {
    double x = 0, step = 1;
    for (int i = 0; i < 200 && fabs(step) > 1e-16 * fabs(x); ++i)
        x += step = (fabs(y) - erf(x)) * exp(x * x) * 0.886226925452758014;
    return copysign(x, y);
}
inline float erfinv(float y) { return (float)erfinv((double)y); }
inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678118654752f); }
inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752); }
inline float normcdf(float x) { return normcdff(x); }

#define EXPORT_KERNEL(name)                                                                                \
    extern "C" int run_##name(const unsigned* extents, unsigned long shared, void** given) {               \
        return cuda_on_host::run(name, extents, shared, given);                                             \
    }                                                                                                      \
    extern "C" int arguments_of_##name(unsigned long* bytes, int most) {                                   \
        return cuda_on_host::argument_bytes(name, bytes, most);                                            \
    }
