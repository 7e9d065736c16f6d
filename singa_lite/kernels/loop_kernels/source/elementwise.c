/* Element by element: blocks of up to CHUNK elements, whole lines of a box or a part of one.
 *
 * A block of float32 without gaps is read and written in place. Any other is widened or gathered into a buffer in the
 * first cache, and its result is rounded or scattered from there. */
#include "elementwise.h"
#include "operations.h"
#include "philox.h"

/* An operation on numbers of float32, and on those of bfloat16. */
typedef struct {
    void (*wide)(const float *as, const float *bs, const float *cs, float *ys, int64_t count, float p, float q);
    void (*narrow)(const uint16_t *as, const uint16_t *bs, const uint16_t *cs, uint16_t *ys, int64_t count, float p,
                   float q);
} Operation;

#define FUNCTION(name, type, read, write, result) \
    static void name(const type *as, const type *bs, const type *cs, type *ys, int64_t count, float p, float q) { \
        (void)as, (void)bs, (void)cs, (void)p, (void)q; \
        _Pragma("omp simd") for (int64_t i = 0; i < count; i++) { \
            float a = read(as[i]), b = read(bs[i]), c = read(cs[i]); \
            (void)a, (void)b, (void)c; \
            ys[i] = write(result); \
        } \
    }
#define FUNCTIONS(name, result) \
    FUNCTION(wide_##name, float, , , result) \
    FUNCTION(narrow_##name, uint16_t, widened, narrowed, result)
#define ADDRESSES(name, result) {wide_##name, narrow_##name},

OPERATIONS(FUNCTIONS)

static const Operation operations[] = {OPERATIONS(ADDRESSES)};
#define COPY operations

/* What is done with all blocks, and how many lines and columns a block has. */
typedef struct {
    const Operation *operation, *activation;
    Box read[3], y;
    Extents extents;
    int64_t lines, columns;
    float p, q;
} Work;

/* Columns of a block of a line that needs no buffer. */
#define LONG (4 * CHUNK)
/* Lines and columns of a block of operands that lie turned: whole cache lines of each. */
#define TURNED_LINES 32
#define TURNED_COLUMNS (CHUNK / TURNED_LINES)

/* The elements of a line in float32, into the buffer. */
static void read_line(Box box, int64_t start, int64_t count, float *buffer) {
    int64_t step = box.steps[AXES - 1];
    if (box.type == UNIFORM)
        uniform_numbers(box.at, start, count, buffer);
    else if (box.type == BFLOAT16 && step == 1)
        for (int64_t i = 0; i < count; i++)
            buffer[i] = widened(((const uint16_t *)box.at)[start + i]);
    else if (box.type == BFLOAT16)
        for (int64_t i = 0; i < count; i++)
            buffer[i] = widened(((const uint16_t *)box.at)[start + i * step]);
    else if (box.type == BOOL)
        for (int64_t i = 0; i < count; i++)
            buffer[i] = ((const uint8_t *)box.at)[start + i * step] != 0;
    else if (step == 1)
        for (int64_t i = 0; i < count; i++)
            buffer[i] = ((const float *)box.at)[start + i];
    else
        for (int64_t i = 0; i < count; i++)
            buffer[i] = ((const float *)box.at)[start + i * step];
}

static void write_line(Box box, int64_t start, int64_t count, const float *buffer) {
    int64_t step = box.steps[AXES - 1];
    if (box.type == BFLOAT16 && step == 1)
        for (int64_t i = 0; i < count; i++)
            ((uint16_t *)box.at)[start + i] = narrowed(buffer[i]);
    else if (box.type == BFLOAT16)
        for (int64_t i = 0; i < count; i++)
            ((uint16_t *)box.at)[start + i * step] = narrowed(buffer[i]);
    else if (box.type == BOOL)
        for (int64_t i = 0; i < count; i++)
            ((uint8_t *)box.at)[start + i * step] = buffer[i] != 0;
    else if (step == 1)
        for (int64_t i = 0; i < count; i++)
            ((float *)box.at)[start + i] = buffer[i];
    else
        for (int64_t i = 0; i < count; i++)
            ((float *)box.at)[start + i * step] = buffer[i];
}

/* Whether the elements of a box are neighbours along another axis than the last. */
static inline int lies_turned(Box box, int axis) {
    return box.steps[axis] == 1 && box.steps[AXES - 1] != 1 && box.steps[AXES - 1] != 0;
}

/* A block as one line, where its lines have no gap between them. */
static inline int is_dense(Box box, int64_t lines, int64_t columns) {
    return box.steps[AXES - 1] == 1 && (lines == 1 || box.steps[AXES - 2] == columns);
}

/* A block whose columns lie in memory as its lines should. */
static void read_turned(Box box, int64_t start, int64_t lines, int64_t columns, float *buffer) {
    float column[TURNED_LINES];
    int64_t step = box.steps[AXES - 1];
    box.steps[AXES - 1] = 1;
    for (int64_t i = 0; i < columns; i++) {
        read_line(box, start + i * step, lines, column);
        for (int64_t line = 0; line < lines; line++)
            buffer[line * columns + i] = column[line];
    }
}

static const float *read_block(Box box, int64_t start, int64_t lines, int64_t columns, float *buffer) {
    int dense = is_dense(box, lines, columns);
    if (dense && box.type == FLOAT32)
        return (const float *)box.at + start;
    if (lies_turned(box, AXES - 2) && lines <= TURNED_LINES) {
        read_turned(box, start, lines, columns, buffer);
        return buffer;
    }
    if (dense)
        columns *= lines, lines = 1;
    for (int64_t line = 0; line < lines; line++)
        read_line(box, start + line * box.steps[AXES - 2], columns, buffer + line * columns);
    return buffer;
}

static void write_block(Box box, int64_t start, int64_t lines, int64_t columns, const float *buffer) {
    if (is_dense(box, lines, columns))
        columns *= lines, lines = 1;
    for (int64_t line = 0; line < lines; line++)
        write_line(box, start + line * box.steps[AXES - 2], columns, buffer + line * columns);
}

/* Rounds to bfloat16, as a result that another operation reads would be. */
static void round_line(float *numbers, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        numbers[i] = widened(narrowed(numbers[i]));
}

/* Where a block of an operand begins, in elements. */
static inline int64_t block_start(Box box, Extents extents, int64_t line, int64_t column) {
    return line_start(box, extents, line) + column * box.steps[AXES - 1];
}

/* A block whose operands are all bfloat16 without gaps. Returns 0, and does nothing, of another one. */
static int do_narrow_block(const Work *work, int64_t line, int64_t lines, int64_t column, int64_t columns) {
    const uint16_t *found[3];
    if (work->y.type != BFLOAT16 || !is_dense(work->y, lines, columns))
        return 0;
    uint16_t *result = (uint16_t *)work->y.at + block_start(work->y, work->extents, line, column);
    for (int each = 0; each < 3; each++) {
        Box box = work->read[each];
        if (box.at && (box.type != BFLOAT16 || !is_dense(box, lines, columns)))
            return 0;
        found[each] = box.at ? (uint16_t *)box.at + block_start(box, work->extents, line, column) : result;
    }
    work->operation->narrow(found[0], found[1], found[2], result, lines * columns, work->p, work->q);
    if (work->activation)
        work->activation->narrow(result, result, result, result, lines * columns, work->p, work->q);
    return 1;
}

static void do_block(const Work *work, int64_t line, int64_t lines, int64_t column, int64_t columns) {
    if (do_narrow_block(work, line, lines, column, columns))
        return;
    float buffers[4][CHUNK];
    const float *found[3];
    int64_t count = lines * columns, start = block_start(work->y, work->extents, line, column);
    int in_place = work->y.type == FLOAT32 && is_dense(work->y, lines, columns);
    int copies = work->operation == COPY && !work->activation;
    float *result = in_place ? (float *)work->y.at + start : buffers[3];
    for (int each = 0; each < 3; each++) {
        Box box = work->read[each];
        int64_t from = block_start(box, work->extents, line, column);
        float *buffer = copies && in_place ? result : buffers[each];
        found[each] = box.at ? read_block(box, from, lines, columns, buffer) : result;
    }
    int is_made = copies && (!in_place || found[0] == result); /* by reading it */
    if (!is_made)
        work->operation->wide(found[0], found[1], found[2], result, count, work->p, work->q);
    if (work->activation) {
        if (work->y.type == BFLOAT16)
            round_line(result, count);
        work->activation->wide(result, result, result, result, count, work->p, work->q);
    }
    if (!in_place)
        write_block(work->y, start, lines, columns, is_made ? found[0] : result);
}

static void do_blocks(const Work *work) {
    int64_t count = work->extents.of[AXES - 1], inner = work->extents.of[AXES - 2];
    int64_t across = quotient_up(count, work->columns), down = quotient_up(inner, work->lines);
    int64_t lines = line_count(work->extents), blocks = inner ? lines / inner * down * across : 0;
#pragma omp parallel for schedule(static) if (lines * count > SMALL)
    for (int64_t block = 0; block < blocks; block++) {
        int64_t column = block % across * work->columns, group = block / across;
        int64_t line = group % down * work->lines, outer = group / down;
        do_block(work, outer * inner + line, least(work->lines, inner - line), column,
                 least(work->columns, count - column));
    }
}

static void swap(int64_t *numbers, int one, int other) {
    int64_t kept = numbers[one];
    numbers[one] = numbers[other];
    numbers[other] = kept;
}

/* Makes that axis the lines of blocks along which an operand's elements are neighbours, if it is not the last. */
static void turn(Work *work) {
    for (int each = 0; each < 3; each++)
        for (int axis = 0; axis < AXES - 1 && work->read[each].at; axis++)
            if (lies_turned(work->read[each], axis) && work->extents.of[axis] >= TURNED_COLUMNS) {
                for (int one = 0; one < 3; one++)
                    swap(work->read[one].steps, axis, AXES - 2);
                swap(work->y.steps, axis, AXES - 2);
                swap(work->extents.of, axis, AXES - 2);
                work->lines = TURNED_LINES;
                work->columns = TURNED_COLUMNS;
                return;
            }
}

/* Whether all operands of a call have one type, and lines without gaps: these are read and written in place. */
static int are_in_place(const Work *work) {
    int found = work->y.type != BOOL && work->y.steps[AXES - 1] == 1;
    for (int each = 0; each < 3; each++) {
        Box box = work->read[each];
        found &= !box.at || (box.type == work->y.type && box.steps[AXES - 1] == 1);
    }
    return found;
}

void elementwise(int64_t operation, int64_t activation, Box a, Box b, Box c, Box y, Extents extents, float p, float q) {
    const Operation *second = activation < 0 ? NULL : &operations[activation];
    int64_t count = extents.of[AXES - 1], columns = least(count, CHUNK), lines = columns ? CHUNK / columns : 1;
    Work work = {&operations[operation], second, {a, b, c}, y, extents, lines, columns ? columns : 1, p, q};
    turn(&work);
    if (are_in_place(&work) && count > CHUNK)
        work.columns = LONG;
    do_blocks(&work);
}

void copy(Box x, Box y, Extents extents) {
    elementwise(0, -1, x, (Box){0}, (Box){0}, y, extents, 0, 0);
}
