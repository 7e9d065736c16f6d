/* Attention of one position over the keys and values that are kept of all before it: they are read once.
 *
 * All query heads of a key head are done together. Scores lie by rows here, as there are few of them: a score is the
 * sum of one key's products, and what is added up is scaled whenever a larger score comes, as in attention.c. */
#include "attention.h"

#include "attention_tiles.h"

/* scores = powers of 2 of the scaled scores' distance from the largest so far, top[0]; total[0]: their sum so far.
 * first: the first key that is seen. Returns what all before is to be multiplied by. */
static float score_row(const Task *task, const float *query, const Tile *tile, int64_t first, float *scores, float *top,
                       float *total) {
    float factor = task->scale * LOG2_OF_E, largest = *top, sum = 0;
    for (int64_t key = 0; key < tile->count; key++)
        scores[key] = dot(query, tile->keys.at + key * tile->keys.pitch, task->size) * factor;
    for (int64_t key = 0; tile->hidden && key < tile->count; key++)
        scores[key] = tile->hidden[key] ? HIDDEN : scores[key];
    for (int64_t key = 0; key < least(tile->count, first - tile->first); key++)
        scores[key] = HIDDEN;
#pragma omp simd reduction(max : largest)
    for (int64_t key = 0; key < tile->count; key++)
        largest = scores[key] > largest ? scores[key] : largest;
#pragma omp simd reduction(+ : sum)
    for (int64_t key = 0; key < tile->count; key++) {
        scores[key] = power_of_2(scores[key] - largest);
        sum += scores[key];
    }
    float shrink = power_of_2(*top - largest);
    *total = *total * shrink + sum;
    *top = largest;
    return shrink;
}

/* Asks memory for the lines from `start` on, each far from the one before it: no processor foresees that. */
static void prefetch_lines(Box x, int64_t start, int64_t count, int64_t size) {
    int64_t bytes = is_half(x) ? 2 : 4, pitch = x.steps[AXES - 3] * bytes;
    const char *at = (const char *)x.at + start * bytes;
    for (int64_t row = 0; row < count; row++)
        for (int64_t byte = 0; byte < size * bytes; byte += 64)
            __builtin_prefetch(at + row * pitch + byte);
}

static void attend_row(const Task *task, Box q, Box k, Box v, Box y, Panel panel, float *scratch) {
    int64_t matrix = task->padded * KEYS, padded = task->padded;
    Buffers buffers = {scratch, scratch + matrix, (uint8_t *)(scratch + 2 * matrix)};
    float *result = scratch + 2 * matrix + KEYS, *queries = result + padded * task->rows;
    float *top = queries + padded * up_to(task->rows, STEP), *total = top + task->rows, *scores = total + task->rows;
    Lines query = read_lines(q, place_of(q, panel.sample, 0, panel.head), task->rows, task->size, 0, queries);
    memset(result, 0, padded * task->rows * sizeof(float));
    for (int64_t row = 0; row < task->rows; row++)
        top[row] = HIDDEN, total[row] = 0;
    for (int64_t key = first_tile(panel); key < task->keys; key += KEYS) {
        int64_t next = key + KEYS, ahead = least(KEYS, task->keys - next);
        prefetch_lines(k, place_of(k, panel.sample, next, panel.head), ahead, task->size);
        prefetch_lines(v, place_of(v, panel.sample, next, panel.head), ahead, task->size);
        Tile tile = read_tile(task, k, v, panel, key, 1, buffers);
        for (int64_t row = 0; row < task->rows && tile.count; row++) {
            float *line = scores + row * KEYS;
            float shrink = score_row(task, query.at + row * query.pitch, &tile, panel.low, line, top + row, total + row);
            for (int64_t i = 0; i < padded && shrink != 1; i++)
                result[row * padded + i] *= shrink;
        }
        multiply((Factor){scores, KEYS, 1}, tile.values, (Lines){result, padded}, task->rows, padded, tile.count, 1);
    }
    for (int64_t row = 0; row < task->rows; row++) {
        int sees = !(top[row] <= HIDDEN / 2) || total[row] != total[row];
        write_lines(y, place_of(y, panel.sample, row, panel.head), 1, task->size,
                    (Lines){result + row * padded, padded}, sees ? 1 / total[row] : 0);
    }
}

void cached_row(Box q, Box keys, Box values, Box mask, Box first, Box y, const int64_t *position, void *scratch, Extents sizes,
                int64_t mask_bytes, int64_t mask_is_float, int64_t slots, int64_t slot_bytes, float scale) {
    Task task = task_of(mask, first, NULL, sizes, mask_bytes, mask_is_float, 0, scale, 0);
    task.keys = *position + 1;
    int64_t heads = task.heads;
#pragma omp parallel for schedule(dynamic) num_threads(slots)
    for (int64_t i = 0; i < sizes.of[0] * heads; i++)
        attend_row(&task, q, keys, values, y,
                   (Panel){.sample = i / heads, .head = i % heads, .low = first_key(&task, i / heads, 0)},
               (float *)((char *)scratch + omp_get_thread_num() * slot_bytes));
}
