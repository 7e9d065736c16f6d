// Updates of several tensors by one launch: each block finds its tensor in a table that comes with the arguments.
#include "update.cuh"

// Most tensors of a launch, as in updates.py: the largest table and all else fit into the 4 KiB that arguments may take.
#define MOST 64

// N tensors of each update, every one in a row. counts: their elements; ends: behind the last block of each update,
// all bits set of those that are not there. Laid out as in updates.py.
template <int N> struct Tensors {
    T* p[MOST][N];
    unsigned counts[MOST], ends[MOST];
};

struct Begun {
    void* p[MOST][2]; // rate, count
};

// Which update the block does a part of.
template <int N> __device__ inline int own_update(const Tensors<N>& all) {
    int low = 0, high = MOST - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (blockIdx.x < all.ends[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

// As `map` over that update's tensors by its own blocks alone.
template <int N, class F, class... Ops>
__device__ inline void map_own(const Tensors<N>& all, int update, F f, Ops... ops) {
    const unsigned begin = update ? all.ends[update - 1] : 0;
    const int64 first = (int64)(blockIdx.x - begin) * blockDim.x + threadIdx.x;
    const int64 step = (int64)(all.ends[update] - begin) * blockDim.x;
    const int64 count = all.counts[update];
    bool broadcast[N];
#pragma unroll
    for (int n = 0; n < N; ++n) broadcast[n] = false;
    map_flat(count, are_aligned(ops...) ? count / VECTOR : 0, first, step, broadcast, f, ops...);
}

// A thread for each update.
extern "C" __global__ void begin_updates(
    const __grid_constant__ Begun all, Step* steps, double lr_mult, double decoupled_decay, double beta_1,
    double beta_2) {
    const double* rate = (const double*)all.p[threadIdx.x][0];
    int64* count = (int64*)all.p[threadIdx.x][1];
    begin(rate, count, steps + threadIdx.x, lr_mult, decoupled_decay, beta_1, beta_2);
}

extern "C" __global__ void sgd_plain_of_several(
    const __grid_constant__ Tensors<2> all, const Step* steps, double weight_decay) {
    const int u = own_update(all);
    const Step s = steps[u];
    if (s.is_none()) return;
    map_own(all, u, SgdPlain{s, C(weight_decay)}, both(all.p[u][1]), in((const T*)all.p[u][0]));
}

extern "C" __global__ void sgd_momentum_of_several(
    const __grid_constant__ Tensors<3> all, const Step* steps, double weight_decay, double momentum, double dampening,
    int nesterov) {
    const int u = own_update(all);
    const Step s = steps[u];
    if (s.is_none()) return;
    const SgdMomentum rule{s, C(weight_decay), C(momentum), C(1.0 - dampening), nesterov};
    map_own(all, u, rule, both(all.p[u][1]), both(all.p[u][2]), in((const T*)all.p[u][0]));
}

extern "C" __global__ void rms_prop_of_several(
    const __grid_constant__ Tensors<3> all, const Step* steps, double weight_decay, double rho, double epsilon) {
    const int u = own_update(all);
    const Step s = steps[u];
    if (s.is_none()) return;
    const RmsProp rule{s, C(weight_decay), C(rho), C(1.0 - rho), C(epsilon)};
    map_own(all, u, rule, both(all.p[u][1]), both(all.p[u][2]), in((const T*)all.p[u][0]));
}

extern "C" __global__ void ada_grad_of_several(
    const __grid_constant__ Tensors<3> all, const Step* steps, double weight_decay, double epsilon) {
    const int u = own_update(all);
    const Step s = steps[u];
    if (s.is_none()) return;
    const AdaGrad rule{s, C(weight_decay), C(epsilon)};
    map_own(all, u, rule, both(all.p[u][1]), both(all.p[u][2]), in((const T*)all.p[u][0]));
}

extern "C" __global__ void adam_of_several(
    const __grid_constant__ Tensors<4> all, const Step* steps, double weight_decay, double beta_1, double beta_2,
    double epsilon) {
    const int u = own_update(all);
    const Step s = steps[u];
    if (s.is_none()) return;
    const Adam rule{s, C(weight_decay), C(beta_1), C(1.0 - beta_1), C(beta_2), C(1.0 - beta_2), C(epsilon)};
    map_own(all, u, rule, both(all.p[u][1]), both(all.p[u][2]), both(all.p[u][3]), in((const T*)all.p[u][0]));
}

extern "C" __global__ void ams_grad_of_several(
    const __grid_constant__ Tensors<5> all, const Step* steps, double weight_decay, double beta_1, double beta_2,
    double epsilon) {
    const int u = own_update(all);
    const Step s = steps[u];
    if (s.is_none()) return;
    const Adam rule{s, C(weight_decay), C(beta_1), C(1.0 - beta_1), C(beta_2), C(1.0 - beta_2), C(epsilon)};
    T* const* p = all.p[u];
    map_own(all, u, rule, both(p[1]), both(p[2]), both(p[3]), both(p[4]), in((const T*)p[0]));
}

extern "C" __global__ void lion_of_several(
    const __grid_constant__ Tensors<3> all, const Step* steps, double beta_1, double beta_2) {
    const int u = own_update(all);
    const Step s = steps[u];
    if (s.is_none()) return;
    const Lion rule{s, C(beta_1), C(1.0 - beta_1), C(beta_2), C(1.0 - beta_2)};
    map_own(all, u, rule, both(all.p[u][1]), both(all.p[u][2]), in((const T*)all.p[u][0]));
}
