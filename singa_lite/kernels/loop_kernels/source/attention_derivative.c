/* Attention, backward: the probabilities of a tile are made again from the log of the sum of each row.
 *
 * ds = p * (dy @ v^T - sum of dy * y); dq = scale * ds @ k; dk = scale * ds^T @ q; dv = p^T @ dy. A task is a key head
 * with all query heads that go with it: sums over rows are taken in their order. */
#include "attention.h"

#include "attention_tiles.h"

/* Buffers of a task. query, slope: q, scaled, and dy as (size, PANEL); dquery: the sum of dq so; products: p; slopes: ds,
 * dy @ v^T before; dkeys, dvalues: of all keys. */
typedef struct {
    float *query, *slope, *dquery, *rows, *slope_rows, *products, *slopes, *kept, *lse, *delta, *dkeys, *dvalues;
    Buffers tile;
} Work;

typedef struct {
    Box dy, q, k, v, y, lse, dq, dk, dv;
} Operands;

static Work work_of(const Task *task, float *scratch) {
    int64_t matrix = task->padded * PANEL, tile = KEYS * PANEL;
    float *at[12];
    int64_t sizes[12] = {matrix, matrix, matrix, matrix, matrix, tile, tile, tile, PANEL, PANEL,
                         task->keys * task->padded, task->keys * task->padded};
    for (int i = 0; i < 12; scratch += sizes[i], i++)
        at[i] = scratch;
    Buffers buffers = {scratch, scratch + matrix, (uint8_t *)(scratch + 2 * matrix)};
    return (Work){at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7], at[8], at[9], at[10], at[11], buffers};
}

/* delta = sum of dy * y of each row, and its lse in units of log(2). */
static void read_sums(const Task *task, const Operands *all, Panel panel, Lines dy, Work *work) {
    int64_t start = place_of(all->y, panel.sample, panel.first, panel.head);
    Lines y = read_lines(all->y, start, panel.count, task->size, 0, work->dquery);
    memset(work->delta, 0, PANEL * sizeof(float));
    memset(work->lse, 0, PANEL * sizeof(float));
    read_lse(all->lse, panel, work->lse);
    for (int64_t row = 0; row < panel.count; row++) {
        work->delta[row] = dot(dy.at + row * dy.pitch, y.at + row * y.pitch, task->size);
        work->lse[row] *= LOG2_OF_E;
    }
}

/* products = p; slopes = ds, of dy @ v^T. Where probabilities are dropped, products = those that are kept. */
static void take_slopes(const Task *task, Panel panel, const Tile *tile, Work *work) {
    const float *lse = work->lse, *delta = work->delta;
    for (int64_t key = 0; key < tile->count; key++) {
        float *p = work->products + key * PANEL, *ds = work->slopes + key * PANEL;
        const float *kept = work->kept + key * PANEL;
        int64_t from = first_row(task, panel, tile, key);
        if (task->key) {
#pragma omp simd
            for (int64_t row = from; row < panel.width; row++) {
                float power = power_of_2(p[row] - lse[row]);
                ds[row] = power * (ds[row] * kept[row] - delta[row]);
                p[row] = power * kept[row];
            }
            continue;
        }
#pragma omp simd
        for (int64_t row = from; row < panel.width; row++) {
            p[row] = power_of_2(p[row] - lse[row]);
            ds[row] = p[row] * (ds[row] - delta[row]);
        }
    }
}

/* sums (keys, padded) += factors (keys, PANEL) @ rows (PANEL, padded), over the rows that see the keys. */
static void add_rows(const Task *task, Panel panel, const Tile *tile, const float *factors, Lines rows, float *sums) {
    int64_t strip = strip_of(task, panel, tile);
    for (int64_t key = 0; key < tile->count; key += strip) {
        int64_t from = first_row(task, panel, tile, key);
        multiply((Factor){factors + key * PANEL + from, PANEL, 1}, (Lines){rows.at + from * rows.pitch, rows.pitch},
                 (Lines){sums + (tile->first + key) * task->padded, task->padded}, least(strip, tile->count - key),
                 task->padded, panel.count - from, 1);
    }
}

static void derive_panel(const Task *task, const Operands *all, Panel panel, Work *work) {
    int64_t start = place_of(all->q, panel.sample, panel.first, panel.head);
    Lines q = read_lines(all->q, start, panel.count, task->size, 1, work->rows);
    int64_t slope_start = place_of(all->dy, panel.sample, panel.first, panel.head);
    Lines dy = read_lines(all->dy, slope_start, panel.count, task->size, 1, work->slope_rows);
    transpose(q, (Lines){work->query, PANEL}, panel.width, task->padded, task->scale * LOG2_OF_E);
    transpose(dy, (Lines){work->slope, PANEL}, panel.width, task->padded, 1);
    read_sums(task, all, panel, dy, work);
    memset(work->dquery, 0, task->padded * PANEL * sizeof(float));
    int64_t keys = seen_keys(task, panel);
    for (int64_t key = first_tile(panel); key < keys; key += KEYS) {
        Tile tile = read_tile(task, all->k, all->v, panel, key, 0, work->tile);
        if (!tile.count)
            continue;
        multiply_keys(task, panel, &tile, tile.keys, work->query, work->products);
        hide(task, panel, &tile, work->products);
        multiply_keys(task, panel, &tile, tile.values, work->slope, work->slopes);
        if (task->key)
            draw_kept(task, panel, &tile, work->kept);
        take_slopes(task, panel, &tile, work);
        add_rows(task, panel, &tile, work->products, dy, work->dvalues);
        add_rows(task, panel, &tile, work->slopes, q, work->dkeys);
        add_products(task, panel, &tile, tile.keys, work->slopes, work->dquery);
    }
    transpose((Lines){work->dquery, PANEL}, (Lines){work->query, task->padded}, task->padded, panel.width, task->scale);
    write_lines(all->dq, place_of(all->dq, panel.sample, panel.first, panel.head), panel.count, task->size,
                (Lines){work->query, task->padded}, 1);
}

static void derive_head(const Task *task, const Operands *all, int64_t sample, int64_t head, float *scratch) {
    Work work = work_of(task, scratch);
    memset(work.dkeys, 0, task->keys * task->padded * sizeof(float));
    memset(work.dvalues, 0, task->keys * task->padded * sizeof(float));
    for (int64_t each = 0; each < task->share; each++)
        for (int64_t row = 0; row < task->rows; row += PANEL)
            derive_panel(task, all, panel_of(task, sample, head * task->share + each, row), &work);
    write_lines(all->dk, place_of(all->dk, sample, 0, head), task->keys, task->size, (Lines){work.dkeys, task->padded},
                task->scale);
    write_lines(all->dv, place_of(all->dv, sample, 0, head), task->keys, task->size,
                (Lines){work.dvalues, task->padded}, 1);
}

void attention_derivative(Box dy, Box q, Box k, Box v, Box mask, Box first, Box y, Box lse, Box dq, Box dk, Box dv,
                          const uint64_t *key, void *scratch, Extents sizes, int64_t mask_bytes, int64_t mask_is_float,
                          int64_t is_causal, int64_t slots, int64_t slot_bytes, float scale, float p) {
    Task task = task_of(mask, first, key, sizes, mask_bytes, mask_is_float, is_causal, scale, p);
    Operands all = {dy, q, k, v, y, lse, dq, dk, dv};
    int64_t heads = sizes.of[4];
#pragma omp parallel for schedule(dynamic) num_threads(slots)
    for (int64_t i = 0; i < sizes.of[0] * heads; i++)
        derive_head(&task, &all, i / heads, i % heads, (float *)((char *)scratch + omp_get_thread_num() * slot_bytes));
}
