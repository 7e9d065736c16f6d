/* Numbers of quantised blocks: a block at a time, by the formulas of ggml's formats, which the package gguf has too. */
#include "quantized.h"
#include "product.h"

/* The order of the formats in the interface's table. */
enum { Q4_0, Q4_1, Q8_0, Q4_K, Q5_K, Q6_K, F16, BF16 };

/* Numbers of a block at most, and those that are done at a time where a format has none. */
#define MOST 256

static inline uint16_t half_at(const uint8_t *at) {
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return half;
}

/* The value of a float16: its bits as those of a float32, whose exponents are 112 higher. */
static inline float half_value(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    float finite = number_of(rest << 13) * 0x1p112f;
    uint32_t bits = rest >= 0x7c00 ? 0x7f800000 | (rest & 0x3ff) << 13 : bits_of(finite);
    return number_of(sign | bits);
}

static inline float scale_at(const uint8_t *at) { return half_value(half_at(at)); }

/* y = d * (code - middle) + m of 2 * half codes of 4 bits: first the low ones of all bytes, then the high ones. */
INLINE void nibbles(const uint8_t *codes, int half, float d, float middle, float m, float *y) {
#pragma omp simd
    for (int i = 0; i < half; i++) {
        y[i] = d * ((float)(codes[i] & 15) - middle) + m;
        y[i + half] = d * ((float)(codes[i] >> 4) - middle) + m;
    }
}

/* Scale and minimum of a group: 6 bits each, in 12 bytes. */
INLINE void group_numbers(const uint8_t *at, int group, float *scale, float *minimum) {
    if (group < 4) {
        *scale = at[group] & 63;
        *minimum = at[group + 4] & 63;
    } else {
        *scale = (at[group + 4] & 15) | ((at[group - 4] >> 2) & 48);
        *minimum = (at[group + 4] >> 4) | ((at[group] >> 2) & 48);
    }
}

/* high: a further bit of each code, of the group's number; NULL: there is none. */
INLINE void k_groups(const uint8_t *block, const uint8_t *high, const uint8_t *codes, float *y) {
    float d = scale_at(block), least = scale_at(block + 2);
    for (int group = 0; group < 8; group++, y += 32) {
        float scale, minimum;
        group_numbers(block + 4, group, &scale, &minimum);
        scale *= d;
        minimum *= least;
        const uint8_t *from = codes + group / 2 * 32;
        int shift = group % 2 * 4;
#pragma omp simd
        for (int i = 0; i < 32; i++) {
            int code = (from[i] >> shift) & 15;
            if (high)
                code |= (high[i] >> group & 1) << 4;
            y[i] = scale * (float)code - minimum;
        }
    }
}

INLINE void q6_groups(const uint8_t *block, float *y) {
    float d = scale_at(block + 208);
    const int8_t *scales = (const int8_t *)block + 192;
    for (int group = 0; group < 8; group++, y += 32) {
        const uint8_t *low = block + group / 4 * 64 + group % 2 * 32, *high = block + 128 + group / 4 * 32;
        int shift = group % 4 / 2 * 4, above = group % 4 * 2;
        float first = d * (float)scales[2 * group], second = d * (float)scales[2 * group + 1];
#pragma omp simd
        for (int i = 0; i < 32; i++) {
            int code = ((low[i] >> shift) & 15) | ((high[i] >> above) & 3) << 4;
            y[i] = (i < 16 ? first : second) * (float)(code - 32);
        }
    }
}

/* Numbers and bytes of a block. Of formats without blocks `width` numbers are one. */
INLINE void block_sizes(int64_t format, int64_t width, int64_t *numbers, int64_t *bytes) {
    static const uint8_t quantised[] = {18, 20, 34, 144, 176, 210};
    *numbers = format <= Q8_0 ? 32 : format <= Q6_K ? 256 : width;
    *bytes = format <= Q6_K ? quantised[format] : 2 * width;
}

INLINE void block_numbers(int64_t format, const uint8_t *block, int64_t count, float *y) {
    switch (format) {
    case Q4_0:
        nibbles(block + 2, 16, scale_at(block), 8, -0.0f, y); /* which is added to zeros of both signs */
        break;
    case Q4_1:
        nibbles(block + 4, 16, scale_at(block), 0, scale_at(block + 2), y);
        break;
    case Q8_0: {
        float d = scale_at(block);
        const int8_t *codes = (const int8_t *)block + 2;
#pragma omp simd
        for (int i = 0; i < 32; i++)
            y[i] = d * (float)codes[i];
        break;
    }
    case Q4_K:
        k_groups(block, NULL, block + 16, y);
        break;
    case Q5_K:
        k_groups(block, block + 16, block + 48, y);
        break;
    case Q6_K:
        q6_groups(block, y);
        break;
    case F16:
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            y[i] = scale_at(block + 2 * i);
        break;
    default:
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            y[i] = widened(half_at(block + 2 * i));
    }
}

INLINE void row_of(int64_t format, const uint8_t *block, Rows y, int64_t row, int64_t columns) {
    float buffer[MOST];
    int64_t numbers, bytes;
    block_sizes(format, MOST, &numbers, &bytes);
    for (int64_t column = 0; column < columns; column += numbers, block += bytes) {
        int64_t count = least(numbers, columns - column);
        float *to = target_chunk(y, row, column, buffer);
        block_numbers(format, block, count, to);
        write_chunk(y, row, column, count, to);
    }
}

/* A row, with the code of its format alone. */
static void dequantize_row(int64_t format, const uint8_t *block, Rows y, int64_t row, int64_t columns) {
    switch (format) {
    case Q4_0:
        row_of(Q4_0, block, y, row, columns);
        break;
    case Q4_1:
        row_of(Q4_1, block, y, row, columns);
        break;
    case Q8_0:
        row_of(Q8_0, block, y, row, columns);
        break;
    default:
        row_of(format, block, y, row, columns);
    }
}

void dequantize(const void *blocks, int64_t pitch, int64_t format, Rows y, int64_t rows, int64_t columns) {
#pragma omp parallel for schedule(static) if (rows * columns > SMALL)
    for (int64_t row = 0; row < rows; row++)
        dequantize_row(format, (const uint8_t *)blocks + row * pitch, y, row, columns);
}

void quantized_embedding(const void *ids, int64_t type, int64_t step, const void *blocks, int64_t pitch, int64_t format,
                         Rows y, int64_t count, int64_t columns) {
#pragma omp parallel for schedule(static) if (count * columns > SMALL)
    for (int64_t i = 0; i < count; i++) {
        int64_t id = read_id((const char *)ids + i * step, type);
        dequantize_row(format, (const uint8_t *)blocks + id * pitch, y, i, columns);
    }
}

/* Numbers of a row of the weight that are multiplied at a time: whole blocks of any format. */
#define WIDTH 1024
/* Vectors of sums: as many as additions that a processor has under way. */
#define SUMS 4

INLINE float sum_of_products(const float *a, const float *b, int64_t count) {
    Vector sums[SUMS] = {{0}};
    float total = 0;
    int64_t i = 0;
    for (; i + SUMS * LANES <= count; i += SUMS * LANES)
#pragma GCC unroll 4
        for (int part = 0; part < SUMS; part++)
            sums[part] += *(const Vector *)(a + i + part * LANES) * *(const Vector *)(b + i + part * LANES);
    for (; i < count; i++)
        total += a[i] * b[i];
    Vector sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (int lane = 0; lane < LANES; lane++)
        total += sum[lane];
    return total;
}

INLINE void multiply_row(Rows x, const uint8_t *block, int64_t format, float bias, Rows y, int64_t count, int64_t row,
                         int64_t columns) {
    float sums[FEW_ROWS] = {0}, numbers[WIDTH], wide[WIDTH];
    int64_t each, bytes;
    block_sizes(format, MOST, &each, &bytes);
    for (int64_t column = 0; column < columns; column += WIDTH, block += WIDTH / each * bytes) {
        int64_t width = least(WIDTH, columns - column);
        dequantize_row(format, block, (Rows){numbers, WIDTH, 0}, 0, width);
        for (int64_t i = 0; i < count; i++)
            sums[i] += sum_of_products(read_chunk(x, i, column, width, wide), numbers, width);
    }
    for (int64_t i = 0; i < count; i++)
        set_element(y.at, y.is_narrow, i * y.pitch + row, sums[i] + bias);
}

void quantized_linear(Rows x, const void *blocks, int64_t pitch, int64_t format, const float *bias, Rows y,
                      int64_t count, int64_t rows, int64_t columns) {
#pragma omp parallel for schedule(static) if (rows * columns > SMALL)
    for (int64_t row = 0; row < rows; row++)
        multiply_row(x, (const uint8_t *)blocks + row * pitch, format, bias ? bias[row] : 0, y, count, row, columns);
}
