// Numbers of quantised blocks by the formulas of ggml's formats: of all rows, or of rows by ids. y lies in C order.
// S: the ids' type. H: float16, of which the scales are.
#include "map.cuh"

typedef unsigned char Byte;

// The order of the formats in the interface's table.
enum Format { Q4_0, Q4_1, Q8_0, Q4_K, Q5_K, Q6_K, F16, BF16 };

// Blocks have an even number of bytes, and begin wherever a file has them.
__device__ inline unsigned short bits_at(const Byte* at) { return (unsigned short)(at[0] | at[1] << 8); }
__device__ inline C half_at(const Byte* at) { return C(float(__ushort_as_half(bits_at(at)))); }

// Numbers in a row that a thread takes. They have one scale, and their codes lie alike.
struct Run {
    C v[VECTOR];

    template <class Number> __device__ inline void fill(Number number) {
#pragma unroll
        for (int k = 0; k < VECTOR; ++k) v[k] = number(k);
    }
    __device__ inline void store(T* y, int count) const {
        Pack<T> pack;
#pragma unroll
        for (int k = 0; k < VECTOR; ++k) pack.v[k] = T(v[k]);
        if (count == VECTOR && reinterpret_cast<uint64>(y) % alignof(Pack<T>) == 0) {
            *reinterpret_cast<Pack<T>*>(y) = pack;
            return;
        }
#pragma unroll
        for (int k = 0; k < VECTOR; ++k)
            if (k < count) y[k] = pack.v[k];
    }
};

// code(k) of a group of 32 numbers, whose scale and minimum are 6 bits each in the 12 bytes behind d and dmin.
template <class Code> __device__ inline void fill_group(Run& run, const Byte* block, int group, Code code) {
    const Byte* const packed = block + 4 + group % 4;
    int scale = packed[0] & 63, minimum = packed[4] & 63;
    if (group >= 4) {
        scale = (packed[8] & 15) | (packed[0] >> 2 & 48);
        minimum = packed[8] >> 4 | (packed[4] >> 2 & 48);
    }
    const C factor = half_at(block) * C(scale), least = rounded_product(half_at(block + 2), C(minimum));
    run.fill([=](int k) { return rounded_product(factor, C(code(k))) - least; });
}

// Those from number `first` of a block on; count: how many there are of a format without blocks.
__device__ inline void read_run(Run& run, int format, const Byte* block, int first, int count) {
    const Byte* const codes = block + first % 32;
    const int group = first / 32, quarter = group % 4, shift = first / 16 * 4, upper = group % 2 * 4;
    switch (format) {
    case Q4_0: {
        const C d = half_at(block);
        run.fill([=](int k) { return d * C((block[2 + first % 16 + k] >> shift & 15) - 8); });
        break;
    }
    case Q4_1: {
        const C d = half_at(block), m = half_at(block + 2);
        run.fill([=](int k) { return rounded_product(d, C(block[4 + first % 16 + k] >> shift & 15)) + m; });
        break;
    }
    case Q8_0: {
        const C d = half_at(block);
        run.fill([=](int k) { return d * C((signed char)codes[2 + k]); });
        break;
    }
    case Q4_K:
        fill_group(run, block, group, [=](int k) { return codes[16 + group / 2 * 32 + k] >> upper & 15; });
        break;
    case Q5_K:
        fill_group(run, block, group, [=](int k) {
            return (codes[48 + group / 2 * 32 + k] >> upper & 15) | (codes[16 + k] >> group & 1) << 4;
        });
        break;
    case Q6_K: {
        const C factor = half_at(block + 208) * C((signed char)block[192 + first / 16]);
        run.fill([=](int k) {
            const int low = codes[group / 4 * 64 + quarter % 2 * 32 + k] >> quarter / 2 * 4 & 15;
            return factor * C((low | (codes[128 + group / 4 * 32 + k] >> 2 * quarter & 3) << 4) - 32);
        });
        break;
    }
    case F16:
        run.fill([=](int k) { return k < count ? half_at(block + 2 * k) : C(0); });
        break;
    default:
        run.fill([=](int k) { return k < count ? C(float(__ushort_as_bfloat16(bits_at(block + 2 * k)))) : C(0); });
    }
}

// Row i of y = the numbers of row row_of(i), NaN where that is below 0. pitch: bytes from a row to the next; numbers,
// bytes: of a block.
template <class RowOf>
__device__ inline void fill_rows(const Byte* blocks, T* y, int64 rows, int64 columns, int64 pitch, int64 format,
                                 int64 numbers, int64 bytes, RowOf row_of) {
    const int64 runs = (columns + VECTOR - 1) / VECTOR;
    EACH(int64, i, rows * runs) {
        const int64 row = row_of(i / runs), column = i % runs * VECTOR;
        const int count = (int)min((int64)VECTOR, columns - column);
        Run run;
        if (row < 0)
            run.fill([](int) { return infinity() - infinity(); });
        else
            read_run(run, (int)format, blocks + row * pitch + column / numbers * bytes, (int)(column % numbers), count);
        run.store(y + i / runs * columns + column, count);
    }
}

extern "C" __global__ void dequantize(const Byte* blocks, T* y, int64 rows, int64 columns, int64 pitch, int64 format,
                                      int64 numbers, int64 bytes) {
    fill_rows(blocks, y, rows, columns, pitch, format, numbers, bytes, [](int64 i) { return i; });
}

extern "C" __global__ void quantized_embedding(const S* ids, const Byte* blocks, T* y, int64 places, int64 rows,
                                               int64 columns, int64 pitch, int64 format, int64 numbers, int64 bytes) {
    fill_rows(blocks, y, places, columns, pitch, format, numbers, bytes, [=](int64 i) {
        const int64 id = (int64)ids[i];
        return id < rows ? id : -1;
    });
}
