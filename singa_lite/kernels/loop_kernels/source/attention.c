/* Attention, forward: for each row the largest score so far and the sum of the powers over it are kept, and what was
 * summed up is scaled whenever a larger score comes (Milakov and Gimelshein, arXiv 1805.02867).
 *
 * A task is up to PANELS panels of one head. Each tile of keys is read once for all of them. */
#include "attention.h"

#include "attention_tiles.h"

#define PANELS 4

/* What is kept of a panel. query: (size, PANEL), scaled; result: (size, PANEL); top: the largest score; total: the sum
 * of powers. */
typedef struct {
    Panel panel;
    float *query, *result, *top, *total;
} State;

static void start_panel(const Task *task, Box q, State *state, float *buffer) {
    Panel panel = state->panel;
    int64_t start = place_of(q, panel.sample, panel.first, panel.head);
    Lines rows = read_lines(q, start, panel.count, task->size, 1, buffer);
    transpose(rows, (Lines){state->query, PANEL}, panel.width, task->padded, task->scale * LOG2_OF_E);
    memset(state->result, 0, task->size * PANEL * sizeof(float));
    memset(state->total, 0, PANEL * sizeof(float));
    for (int64_t row = 0; row < PANEL; row++)
        state->top[row] = HIDDEN;
}

/* Raises the largest scores by those of the tile. shrink: what all before is to be multiplied by. Whether any is. */
static int raise_top(const Task *task, State *state, const Tile *tile, const float *scores, float *shrink) {
    float *top = state->top, before[PANEL];
    int64_t width = state->panel.width;
    memcpy(before, top, sizeof before);
    for (int64_t key = 0; key < tile->count; key++) {
        const float *line = scores + key * PANEL;
#pragma omp simd
        for (int64_t row = first_row(task, state->panel, tile, key); row < width; row++)
            top[row] = line[row] > top[row] ? line[row] : top[row];
    }
    int changes = 0;
#pragma omp simd reduction(| : changes)
    for (int64_t row = 0; row < width; row++) {
        shrink[row] = power_of_2(before[row] - top[row]);
        changes |= shrink[row] != 1;
    }
    return changes;
}

/* scores = powers of their distance from the largest; adds them up. */
static void take_powers(const Task *task, State *state, const Tile *tile, float *scores) {
    const float *top = state->top;
    float *total = state->total;
    int64_t width = state->panel.width, key = 0;
    for (; key + 4 <= tile->count; key += 4) {
        float *a = scores + key * PANEL, *b = a + PANEL, *c = b + PANEL, *d = c + PANEL;
#pragma omp simd
        for (int64_t row = first_row(task, state->panel, tile, key); row < width; row++) {
            a[row] = power_of_2(a[row] - top[row]);
            b[row] = power_of_2(b[row] - top[row]);
            c[row] = power_of_2(c[row] - top[row]);
            d[row] = power_of_2(d[row] - top[row]);
            total[row] += (a[row] + b[row]) + (c[row] + d[row]);
        }
    }
    for (; key < tile->count; key++) {
        float *a = scores + key * PANEL;
#pragma omp simd
        for (int64_t row = first_row(task, state->panel, tile, key); row < width; row++) {
            a[row] = power_of_2(a[row] - top[row]);
            total[row] += a[row];
        }
    }
}

static void shrink_panel(const Task *task, State *state, const float *shrink) {
    for (int64_t row = 0; row < PANEL; row++)
        state->total[row] *= shrink[row];
    for (int64_t i = 0; i < task->size; i++)
        for (int64_t row = 0; row < PANEL; row++)
            state->result[i * PANEL + row] *= shrink[row];
}

static void add_tile(const Task *task, State *state, const Tile *tile, float *scores, float *kept) {
    float shrink[PANEL] = {0};
    Panel panel = state->panel;
    multiply_keys(task, panel, tile, tile->keys, state->query, scores);
    hide(task, panel, tile, scores);
    if (raise_top(task, state, tile, scores, shrink))
        shrink_panel(task, state, shrink);
    take_powers(task, state, tile, scores);
    if (task->key) {
        draw_kept(task, panel, tile, kept);
        for (int64_t key = 0; key < tile->count; key++)
            for (int64_t row = first_row(task, panel, tile, key); row < panel.width; row++)
                scores[key * PANEL + row] *= kept[key * PANEL + row];
    }
    add_products(task, panel, tile, tile->values, scores, state->result);
}

/* y and lse of a panel. A row that sees no key, but NaN, gives zeros. */
static void finish_panel(const Task *task, Box y, Box lse, State *state, float *buffer) {
    float *total = state->total, *top = state->top, factors[PANEL];
    Panel panel = state->panel;
    for (int64_t row = 0; row < PANEL; row++) {
        int sees = !(top[row] <= HIDDEN / 2) || total[row] != total[row];
        factors[row] = sees ? 1 / total[row] : 0;
        total[row] = sees ? (top[row] + log2f(total[row])) / LOG2_OF_E : 0;
    }
    for (int64_t i = 0; i < task->size; i++)
        for (int64_t row = 0; row < PANEL; row++)
            state->result[i * PANEL + row] *= factors[row];
    transpose((Lines){state->result, PANEL}, (Lines){buffer, task->padded}, task->padded, panel.width, 1);
    int64_t start = place_of(y, panel.sample, panel.first, panel.head);
    write_lines(y, start, panel.count, task->size, (Lines){buffer, task->padded}, 1);
    if (lse.at)
        write_lse(lse, panel, total);
}

static void attend(const Task *task, Box q, Box k, Box v, Box y, Box lse, int64_t sample, int64_t head, int64_t first,
                   float *scratch) {
    int64_t matrix = task->padded * PANEL, panels = 0;
    State states[PANELS];
    float *scores = scratch, *kept = scores + KEYS * PANEL, *buffer = kept + KEYS * PANEL;
    Buffers buffers = {buffer + matrix, buffer + 2 * matrix, (uint8_t *)(buffer + 3 * matrix)};
    float *next = buffer + 3 * matrix + KEYS;
    for (; panels < PANELS && first + panels * PANEL < task->rows; panels++, next += 2 * matrix + 2 * PANEL) {
        Panel panel = panel_of(task, sample, head, first + panels * PANEL);
        states[panels] = (State){panel, next, next + matrix, next + 2 * matrix, next + 2 * matrix + PANEL};
        start_panel(task, q, &states[panels], buffer);
    }
    int64_t keys = seen_keys(task, states[panels - 1].panel), start = first_tile(states[0].panel);
    for (int64_t i = 1; i < panels; i++)
        start = least(start, first_tile(states[i].panel));
    for (int64_t key = start; key < keys; key += KEYS) {
        Tile tile = read_tile(task, k, v, states[0].panel, key, 0, buffers);
        for (int64_t i = 0; i < panels && tile.count; i++)
            if (key < seen_keys(task, states[i].panel) && key >= first_tile(states[i].panel))
                add_tile(task, &states[i], &tile, scores, kept);
    }
    for (int64_t i = 0; i < panels; i++)
        finish_panel(task, y, lse, &states[i], buffer);
}

/* All heads and blocks of rows, the last ones first, as these see the most keys where it is causal. */
static void attend_all(const Task *task, Box q, Box k, Box v, Box y, Box lse, int64_t samples, char *scratch,
                       int64_t slots, int64_t slot_bytes) {
    int64_t blocks = quotient_up(task->rows, PANELS * PANEL), heads = samples * task->heads;
#pragma omp parallel for schedule(dynamic) num_threads(slots)
    for (int64_t i = 0; i < heads * blocks; i++) {
        int64_t block = blocks - 1 - i / heads, head = i % heads;
        attend(task, q, k, v, y, lse, head / task->heads, head % task->heads, block * PANELS * PANEL,
               (float *)(scratch + omp_get_thread_num() * slot_bytes));
    }
}

void attention(Box q, Box k, Box v, Box mask, Box first, Box y, Box lse, const uint64_t *key, void *scratch, Extents sizes,
               int64_t mask_bytes, int64_t mask_is_float, int64_t is_causal, int64_t slots, int64_t slot_bytes,
               float scale, float p) {
    Task task = task_of(mask, first, key, sizes, mask_bytes, mask_is_float, is_causal, scale, p);
    attend_all(&task, q, k, v, y, lse, sizes.of[0], scratch, slots, slot_bytes);
}

void cached_attention(Box q, Box keys, Box values, Box mask, Box first, Box y, const int64_t *position, void *scratch,
                      Extents sizes, int64_t mask_bytes, int64_t mask_is_float, int64_t slots, int64_t slot_bytes,
                      float scale) {
    Task task = task_of(mask, first, NULL, sizes, mask_bytes, mask_is_float, 1, scale, 0);
    task.before = *position;
    task.keys = *position + task.rows;
    attend_all(&task, q, keys, values, y, (Box){NULL}, sizes.of[0], scratch, slots, slot_bytes);
}
