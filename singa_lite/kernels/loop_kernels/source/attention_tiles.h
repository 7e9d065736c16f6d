/* What both directions of attention do with a tile: up to KEYS keys by a panel of up to PANEL rows.
 *
 * Scores of a tile are stored by keys: those of one key for all rows of the panel lie one behind the other. So maxima
 * and sums over keys are of whole vectors, keys and values are left factors as they lie, and only the rows are
 * transposed. Scores are in units of log(2), and powers are those of 2. */
#ifndef ATTENTION_TILES_H
#define ATTENTION_TILES_H

#include <omp.h>

#include "numbers.h"
#include "philox.h"
#include "product.h"

#define PANEL 64
#define KEYS 64
/* Keys and rows of a step along the diagonal: what lies above it is not computed. */
#define STEP 16
/* The score of a key that a row does not see. Not infinity, which less infinity is NaN. */
#define HIDDEN -1e30f
#define LOG2_OF_E 1.44269504f

/* One call. first: the first key that each row sees, an int of `type` bytes, `at` NULL where all begin at 0; padded: size,
 * up to a multiple of STEP; before: keys that the first row sees beside its own, where each row sees one more than the
 * row before it (is_causal). */
typedef struct {
    Box mask, first;
    const uint64_t *key;
    int64_t rows, keys, heads, share, size, padded, mask_bytes, mask_is_float, is_causal, before;
    float scale, p;
} Task;

/* Rows of a query head. width: count, up to a multiple of STEP; low, high: the least and the largest first key that one of
 * them sees. */
typedef struct {
    int64_t sample, head, first, count, width, low, high;
} Panel;

/* Keys of a key head with their values. hidden: whether each is hidden; NULL where none is. */
typedef struct {
    int64_t first, count;
    Lines keys, values;
    const uint8_t *hidden;
} Tile;

/* Buffers for the keys and values of a tile that do not lie as products want them. */
typedef struct {
    float *keys, *values;
    uint8_t *hidden;
} Buffers;

static inline int64_t up_to(int64_t count, int64_t step) { return quotient_up(count, step) * step; }

static inline Task task_of(Box mask, Box first, const uint64_t *key, Extents sizes, int64_t mask_bytes,
                           int64_t mask_is_float, int64_t is_causal, float scale, float p) {
    Task task = {mask, first, key, sizes.of[1], sizes.of[2], sizes.of[3], sizes.of[3] / sizes.of[4], sizes.of[5]};
    task.padded = up_to(task.size, STEP);
    task.mask_bytes = mask_bytes, task.mask_is_float = mask_is_float;
    task.is_causal = is_causal, task.scale = scale, task.p = p;
    return task;
}

/* The first key that a row sees. */
static inline int64_t first_key(const Task *task, int64_t sample, int64_t row) {
    const int64_t *steps = task->first.steps + AXES - 2;
    int64_t at = sample * steps[0] + row * steps[1];
    if (!task->first.at)
        return 0;
    int64_t key = task->first.type == 8 ? ((const int64_t *)task->first.at)[at] : ((const int32_t *)task->first.at)[at];
    return key < 0 ? 0 : key;
}

static inline Panel panel_of(const Task *task, int64_t sample, int64_t head, int64_t first) {
    int64_t count = least(PANEL, task->rows - first);
    Panel panel = {sample, head, first, count, up_to(count, STEP)};
    panel.low = panel.high = first_key(task, sample, first);
    for (int64_t row = 1; task->first.at && row < count; row++) {
        int64_t key = first_key(task, sample, first + row);
        panel.low = key < panel.low ? key : panel.low;
        panel.high = key > panel.high ? key : panel.high;
    }
    return panel;
}

/* Where the tile begins that has the first key that a panel sees. */
static inline int64_t first_tile(Panel panel) { return panel.low / KEYS * KEYS; }

/* Where the first of a head's rows or keys from `first` on begins, in elements. */
static inline int64_t place_of(Box x, int64_t sample, int64_t first, int64_t head) {
    const int64_t *steps = x.steps + AXES - 4;
    return sample * steps[0] + first * steps[1] + head * steps[2];
}

/* Rows of a tensor in float32, in place where they lie so. is_whole: padded with zeros to multiples of STEP. */
static inline Lines read_lines(Box x, int64_t start, int64_t count, int64_t size, int is_whole, float *buffer) {
    int64_t pitch = x.steps[AXES - 3], step = x.steps[AXES - 1], padded = up_to(size, STEP);
    int is_even = count % STEP == 0 && size % STEP == 0;
    if (!is_half(x) && step == 1 && (is_even || !is_whole))
        return (Lines){(float *)x.at + start, pitch};
    for (int64_t row = 0; row < count; row++) {
        float *to = buffer + row * padded;
        const float *from = (const float *)x.at + start + row * pitch;
        const uint16_t *half = (const uint16_t *)x.at + start + row * pitch;
        if (is_half(x))
            for (int64_t i = 0; i < size; i++)
                to[i] = widened(half[i * step]);
        else
            for (int64_t i = 0; i < size; i++)
                to[i] = from[i * step];
        memset(to + size, 0, (padded - size) * sizeof(float));
    }
    if (is_whole)
        memset(buffer + count * padded, 0, (up_to(count, STEP) - count) * padded * sizeof(float));
    return (Lines){buffer, padded};
}

static inline void write_lines(Box y, int64_t start, int64_t count, int64_t size, Lines x, float factor) {
    int64_t pitch = y.steps[AXES - 3], step = y.steps[AXES - 1];
    for (int64_t row = 0; row < count; row++) {
        const float *from = x.at + row * x.pitch;
        float *to = (float *)y.at + start + row * pitch;
        uint16_t *half = (uint16_t *)y.at + start + row * pitch;
        if (is_half(y))
            for (int64_t i = 0; i < size; i++)
                half[i * step] = narrowed(from[i] * factor);
        else
            for (int64_t i = 0; i < size; i++)
                to[i * step] = from[i] * factor;
    }
}

static inline float dot(const float *a, const float *b, int64_t count) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static inline int64_t lse_place(Box lse, Panel panel) {
    const int64_t *steps = lse.steps + AXES - 3;
    return panel.sample * steps[0] + panel.head * steps[1] + panel.first * steps[2];
}

static inline void read_lse(Box lse, Panel panel, float *values) {
    int64_t start = lse_place(lse, panel), step = lse.steps[AXES - 1];
    for (int64_t row = 0; row < panel.count; row++)
        values[row] = element(lse.at, is_half(lse), start + row * step);
}

static inline void write_lse(Box lse, Panel panel, const float *values) {
    int64_t start = lse_place(lse, panel), step = lse.steps[AXES - 1];
    for (int64_t row = 0; row < panel.count; row++)
        set_element(lse.at, is_half(lse), start + row * step, values[row]);
}

/* Whether the mask hides a key: its number is 0, of either sign. */
static inline int is_hidden(const Task *task, int64_t sample, int64_t key) {
    const int64_t *steps = task->mask.steps + AXES - 2;
    const char *at = (const char *)task->mask.at + (sample * steps[0] + key * steps[1]) * task->mask_bytes;
    return is_zero(at, task->mask_bytes, task->mask_is_float);
}

/* The keys from `first` on with their values. Those that the mask hides are not read: zeros are in their place.
 * is_whole: values are padded, see `read_lines`. */
static inline Tile read_tile(const Task *task, Box k, Box v, Panel panel, int64_t first, int is_whole,
                             Buffers buffers) {
    int64_t count = least(KEYS, task->keys - first), hidden = 0, head = panel.head / task->share;
    for (int64_t i = 0; task->mask.at && i < count; i++)
        hidden += buffers.hidden[i] = is_hidden(task, panel.sample, first + i);
    Tile tile = {first, hidden == count ? 0 : count, {0}, {0}, hidden ? buffers.hidden : NULL};
    if (!tile.count)
        return tile;
    int64_t key = place_of(k, panel.sample, first, head), value = place_of(v, panel.sample, first, head);
    tile.keys = read_lines(k, key, count, task->size, 0, buffers.keys);
    tile.values = read_lines(v, value, count, task->size, is_whole, buffers.values);
    if (!hidden)
        return tile;
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < task->size; j++) {
            buffers.keys[i * task->padded + j] = buffers.hidden[i] ? 0 : tile.keys.at[i * tile.keys.pitch + j];
            buffers.values[i * task->padded + j] = buffers.hidden[i] ? 0 : tile.values.at[i * tile.values.pitch + j];
        }
    tile.keys = (Lines){buffers.keys, task->padded};
    tile.values = (Lines){buffers.values, task->padded};
    return tile;
}

/* Keys that the rows of a panel see. */
static inline int64_t seen_keys(const Task *task, Panel panel) {
    return task->is_causal ? least(task->keys, task->before + panel.first + panel.count) : task->keys;
}

/* How many rows of the panel do not see this key of a tile, or fewer than none: only where is_causal. */
static inline int64_t blind_rows(const Task *task, Panel panel, const Tile *tile, int64_t key) {
    return task->is_causal ? tile->first + key - panel.first - task->before : 0;
}

/* Keys that are multiplied at a time: all where the diagonal does not go through the tile. */
static inline int64_t strip_of(const Task *task, Panel panel, const Tile *tile) {
    return blind_rows(task, panel, tile, tile->count - 1) > 0 ? STEP : KEYS;
}

/* The first row that may see a key of the tile, down to a multiple of STEP: rows before it are not computed. */
static inline int64_t first_row(const Task *task, Panel panel, const Tile *tile, int64_t key) {
    int64_t rows = blind_rows(task, panel, tile, key / STEP * STEP);
    return rows > 0 ? rows / STEP * STEP : 0;
}

/* scores = keys @ rows, for the rows that may see them. rows: (size, PANEL). */
static inline void multiply_keys(const Task *task, Panel panel, const Tile *tile, Lines keys, const float *rows,
                                 float *scores) {
    int64_t strip = strip_of(task, panel, tile);
    for (int64_t key = 0; key < tile->count; key += strip) {
        int64_t from = first_row(task, panel, tile, key);
        multiply((Factor){keys.at + key * keys.pitch, keys.pitch, 1}, (Lines){(float *)rows + from, PANEL},
                 (Lines){scores + key * PANEL + from, PANEL}, least(strip, tile->count - key), panel.width - from,
                 task->size, 0);
    }
}

/* sums (size, PANEL) += keys^T @ scores. */
static inline void add_products(const Task *task, Panel panel, const Tile *tile, Lines keys, const float *scores,
                                float *sums) {
    int64_t strip = strip_of(task, panel, tile);
    for (int64_t key = 0; key < tile->count; key += strip) {
        int64_t from = first_row(task, panel, tile, key);
        multiply((Factor){keys.at + key * keys.pitch, 1, keys.pitch},
                 (Lines){(float *)scores + key * PANEL + from, PANEL}, (Lines){sums + from, PANEL}, task->size,
                 panel.width - from, least(strip, tile->count - key), 1);
    }
}

/* Puts HIDDEN where rows begin behind keys. */
static inline void hide_earlier(const Task *task, Panel panel, const Tile *tile, float *scores) {
    int64_t firsts[PANEL] = {0};
    for (int64_t row = 0; row < panel.count; row++)
        firsts[row] = first_key(task, panel.sample, panel.first + row) - tile->first;
    for (int64_t key = 0; key < least(tile->count, panel.high - tile->first); key++)
        for (int64_t row = first_row(task, panel, tile, key); row < panel.count; row++)
            if (key < firsts[row])
                scores[key * PANEL + row] = HIDDEN;
}

/* Puts HIDDEN where rows do not see keys. */
static inline void hide(const Task *task, Panel panel, const Tile *tile, float *scores) {
    if (panel.high > tile->first)
        hide_earlier(task, panel, tile, scores);
    int is_cut = strip_of(task, panel, tile) == STEP;
    for (int64_t key = 0; key < tile->count && (is_cut || tile->hidden); key++) {
        int64_t end = least(panel.width, blind_rows(task, panel, tile, key));
        if (tile->hidden && tile->hidden[key])
            end = panel.width;
        for (int64_t row = first_row(task, panel, tile, key); row < end; row++)
            scores[key * PANEL + row] = HIDDEN;
    }
}

/* kept (keys, PANEL) = what probabilities are multiplied by: 0 where one is dropped, else 1 / (1 - p). */
static inline void draw_kept(const Task *task, Panel panel, const Tile *tile, float *kept) {
    float factor = 1 / (1 - task->p);
    memset(kept, 0, KEYS * PANEL * sizeof(float));
    for (int64_t row = 0; row < panel.count; row++) {
        int64_t line = (panel.sample * task->heads + panel.head) * task->rows + panel.first + row;
        int64_t first = line * task->keys + tile->first, count = tile->count;
        if (task->is_causal)
            count = least(count, panel.first + row + 1 - tile->first);
        float numbers[KEYS];
        uniform_numbers(task->key, first, count, numbers);
        for (int64_t key = 0; key < count; key++)
            kept[key * PANEL + row] = numbers[key] < task->p ? 0 : factor;
    }
}

/* 2^x, to one unit of rounding; 0 below 2^-126. NaN stays NaN. */
static inline float power_of_2(float x) {
    const float whole_and_bias = 12582912.0f + 127.0f; /* the sum has the exponent of the result in its low bits */
    x = x < -127.0f ? -127.0f : x;
    x = x > 128.0f ? 128.0f : x;
    float sum = x + whole_and_bias, rest = x - (sum - whole_and_bias);
    float slope = ((1.53533619e-4f * rest + 1.33988744e-3f) * rest + 9.61843736e-3f) * rest + 5.55033247e-2f;
    slope = ((slope * rest + 0.240226479f) * rest + 0.693147203f) * rest + 1.0f;
    return slope * number_of(bits_of(sum) << 23);
}

#endif
