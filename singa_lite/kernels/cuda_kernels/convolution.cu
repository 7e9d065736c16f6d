// Convolution in three directions, any groups: a block has a tile of sums.
#include "activated.cuh"
#include "convolution.cuh"

typedef Tile<64, 64, 16> Square;
// Few filters or channels of a group.
typedef Tile<256, 16, 8> Tall;
typedef Tile<16, 256, 8> Flat;
#define SHARED (Square::ELEMENTS > Tall::ELEMENTS ? Square::ELEMENTS : Tall::ELEMENTS)

// Four channels of an image: those before `left`, whole in one piece.
__device__ inline void store_some(T* p, int64 step, int left, bool whole, const C (&v)[QUAD]) {
    if (whole && left > 0) {
        Quad quad;
#pragma unroll
        for (int q = 0; q < QUAD; ++q) quad.v[q] = T(v[q]);
        *reinterpret_cast<Quad*>(p) = quad;
        return;
    }
#pragma unroll
    for (int q = 0; q < QUAD; ++q)
        if (q < left) p[q * step] = T(v[q]);
}

// Tiles of one image tensor, position by channel of group blockIdx.z; finish(channel, v) changes four sums.
template <class Tile, class A, class B, class F>
__device__ inline void tile_of_images(const Convolution& s, const A& a, const B& b, int terms, const Images& images,
                                      T* target, int channels, bool whole, F finish, C* shared) {
    const int across = (channels + Tile::ACROSS * QUAD - 1) / (Tile::ACROSS * QUAD);
    const int first = blockIdx.x / across * (TILE_THREADS / Tile::ACROSS * QUAD);
    const int channel = blockIdx.x % across * (Tile::ACROSS * QUAD);
    Tile tile;
    tile.multiply(a, b, first, channel, 0, terms, shared);
    const int own = channel + Tile::column();
#pragma unroll
    for (int i = 0; i < QUAD; ++i) {
        const int number = first + Tile::row() + i;
        if (number >= s.pixels) break;
        const Pixel pixel = pixel_of(s, number);
        finish(own, tile.sum[i]);
        T* p = target + offset(images, pixel.n, own, pixel.h, pixel.w);
        store_some(p, images.step_c, channels - own, whole, tile.sum[i]);
    }
}

// narrow: 16 columns a tile. bias may be null; activation: an Activation.
extern "C" __global__ void conv2d(Convolution s, int narrow, const T* x, const T* weight, const T* bias, int64 bias_step,
                                  T* y, int activation) {
    __shared__ C shared[SHARED];
    const int group = blockIdx.z, first = group * s.filters;
    const Patches patches = {s, x + group * s.channels * s.x.step_c, s.x_quads && is_quad_aligned(x)};
    const Filters filters = {s, weight + first * s.weight.step_n, s.weight_quads && is_quad_aligned(weight)};
    T* target = y + first * s.y.step_c;
    const bool whole = s.y_quads && is_quad_aligned(y);
    const int terms = taps(s) * s.channels;
    auto finish = [=](int filter, C (&v)[QUAD]) {
#pragma unroll
        for (int q = 0; q < QUAD; ++q) {
            if (bias && filter + q < s.filters) v[q] += C(bias[(first + filter + q) * bias_step]);
            v[q] = activated(v[q], activation);
        }
    };
    if (narrow)
        tile_of_images<Tall>(s, patches, filters, terms, s.y, target, s.filters, whole, finish, shared);
    else
        tile_of_images<Square>(s, patches, filters, terms, s.y, target, s.filters, whole, finish, shared);
}

extern "C" __global__ void conv2d_derivative(Convolution s, int narrow, const T* dy, const T* weight, T* dx) {
    __shared__ C shared[SHARED];
    const int group = blockIdx.z, first = group * s.filters;
    const Slopes slopes = {s, dy + first * s.y.step_c, s.y_quads && is_quad_aligned(dy)};
    const TurnedFilters filters = {s, weight + first * s.weight.step_n, s.weight_quads && is_quad_aligned(weight)};
    T* target = dx + group * s.channels * s.x.step_c;
    const bool whole = s.x_quads && is_quad_aligned(dx);
    const int terms = taps(s) * s.filters;
    auto finish = [](int, C (&)[QUAD]) {};
    if (narrow)
        tile_of_images<Tall>(s, slopes, filters, terms, s.x, target, s.channels, whole, finish, shared);
    else
        tile_of_images<Square>(s, slopes, filters, terms, s.x, target, s.channels, whole, finish, shared);
}

// partials: (splits, k, kh, kw, c / groups).
template <class Tile>
__device__ inline void tile_of_weights(const Convolution& s, int each, const T* x, const T* dy, C* partials, C* shared) {
    const int group = blockIdx.z, terms = taps(s) * s.channels, width = Tile::ACROSS * QUAD;
    const int across = (terms + width - 1) / width;
    const int filter = blockIdx.x / across * (TILE_THREADS / Tile::ACROSS * QUAD), number = blockIdx.x % across * width;
    const int from = blockIdx.y * each, end = min(from + each, s.pixels);
    const TurnedSlopes slopes = {s, dy + group * s.filters * s.y.step_c, end, s.y_quads && is_quad_aligned(dy)};
    const TurnedPatches patches = {s, x + group * s.channels * s.x.step_c, end, s.x_quads && is_quad_aligned(x)};
    Tile tile;
    tile.multiply(slopes, patches, filter, number, from, end, shared);
    C* target = partials + ((int64)blockIdx.y * gridDim.z + group) * s.filters * terms;
    const int row = filter + Tile::row(), column = number + Tile::column();
#pragma unroll
    for (int i = 0; i < QUAD; ++i)
#pragma unroll
        for (int j = 0; j < QUAD; ++j)
            if (row + i < s.filters && column + j < terms) target[(int64)(row + i) * terms + column + j] = tile.sum[i][j];
}

// each: pixels of a split, blockIdx.y.
extern "C" __global__ void conv2d_gradient(Convolution s, int narrow, int each, const T* x, const T* dy, C* partials) {
    __shared__ C shared[SHARED];
    if (narrow)
        tile_of_weights<Flat>(s, each, x, dy, partials, shared);
    else
        tile_of_weights<Square>(s, each, x, dy, partials, shared);
}
