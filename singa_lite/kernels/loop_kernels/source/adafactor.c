/* Adafactor in three passes over the gradient: means of squares; the sum of the squares of all steps; the steps.
 *
 *     for a block of rows:  for a chunk of columns:  its roots;  for each row:  step = g * min(root * root, 1 / epsilon)
 *
 * So an element takes no root and no division. Work is cut by shapes alone, and sums of parts are added up in order:
 * results are the same for every number of threads. */
#pragma GCC optimize("fp-contract=off")
#include "adafactor.h"
#include "gradients.h"

/* Numbers that are added up side by side, the same number for every processor. */
#define SIDE 32
/* Rows for which roots of columns are taken once. */
#define BLOCK_ROWS 64

/* A gradient, its means, and the lower limit of their roots. variance: in the place of the means where it is given. */
typedef struct {
    Rows gradient;
    const float *scale, *col_var, *variance;
    int64_t rows, columns, blocks;
    double least;
} Steps;

/* What is done with the steps of some elements of a row, from a column on. Returns what is added up. */
typedef double (*Use)(const float *gradient, const float *roots, float root, float limit, int64_t row, int64_t column,
                      int64_t count, const void *by);

static float *numbers_of(Rows rows, int64_t row) { return (float *)rows.at + row * rows.pitch; }

static int64_t row_blocks(int64_t rows) { return quotient_up(rows, BLOCK_ROWS); }

static void fill_roots(const float *means, int64_t count, float *roots) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        roots[i] = 1 / sqrtf(means[i]);
}

/* Goes over a block of rows. */
static double use_block(const Steps *steps, int64_t block, Use use, const void *by) {
    int64_t matrix = block / steps->blocks, first = block % steps->blocks * BLOCK_ROWS;
    int64_t last = least(first + BLOCK_ROWS, steps->rows);
    float roots[CHUNK], limit = (float)(1 / steps->least);
    const float *means = steps->variance ? steps->variance : steps->col_var + matrix * steps->columns;
    double total = 0;
    for (int64_t column = 0; column < steps->columns; column += CHUNK) {
        int64_t count = least(CHUNK, steps->columns - column);
        fill_roots(means + column, count, roots);
        for (int64_t row = first; row < last; row++) {
            int64_t line = matrix * steps->rows + row;
            const float *gradient = numbers_of(steps->gradient, line) + column;
            float own = steps->variance ? 1 : 1 / sqrtf(steps->scale[line]);
            total += use(gradient, roots, own, limit, line, column, count, by);
        }
    }
    return total;
}

INLINE float step_of(float gradient, float column, float row, float limit) {
    float root = column * row;
    return gradient * (root > limit ? limit : root);
}

static double squared(const float *gradient, const float *roots, float root, float limit, int64_t row,
                      int64_t column, int64_t count, const void *by) {
    float lanes[SIDE] = {0};
    double sum = 0;
    int64_t whole = count / SIDE * SIDE;
    for (int64_t i = 0; i < whole; i += SIDE)
#pragma omp simd
        for (int64_t lane = 0; lane < SIDE; lane++) {
            float step = step_of(gradient[i + lane], roots[i + lane], root, limit);
            lanes[lane] += step * step;
        }
    for (int64_t i = whole; i < count; i++) {
        double step = step_of(gradient[i], roots[i], root, limit);
        sum += step * step;
    }
    for (int64_t lane = 0; lane < least(whole, SIDE); lane++)
        sum += lanes[lane];
    return sum;
}

typedef struct {
    Rows value;
    float factor, shrink;
} Move;

static double moved(const float *gradient, const float *roots, float root, float limit, int64_t row,
                    int64_t column, int64_t count, const void *by) {
    Move move = *(const Move *)by;
    float *value = numbers_of(move.value, row) + column;
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        value[i] = value[i] * move.shrink - move.factor * step_of(gradient[i], roots[i], root, limit);
    return 0;
}

/* Means of the squares of a gradient, which move by a share. sums: of each part, of its columns. */
typedef struct {
    Rows gradient;
    float *row_var, *col_var, *scale;
    double *sums;
    int64_t matrices, rows, columns, parts;
    double share, least;
} Means;

/* Adds the squares of a row to those of its columns, and returns their sum. */
static double add_row(const float *row, int64_t columns, double *sums) {
    double lanes[SIDE] = {0}, sum = 0;
    int64_t whole = columns / SIDE * SIDE;
    for (int64_t i = 0; i < whole; i += SIDE)
#pragma omp simd
        for (int64_t lane = 0; lane < SIDE; lane++) {
            double square = (double)row[i + lane] * row[i + lane];
            lanes[lane] += square;
            sums[i + lane] += square;
        }
    for (int64_t i = whole; i < columns; i++) {
        double square = (double)row[i] * row[i];
        sum += square;
        sums[i] += square;
    }
    for (int64_t lane = 0; lane < least(whole, SIDE); lane++)
        sum += lanes[lane];
    return sum;
}

static void approach(float *mean, double found, double share) { *mean += (float)(share * (found - *mean)); }

/* Moves the means of a matrix's columns, by the sums of its parts, and scales those of its rows. */
static void end_matrix(const Means *means, int64_t matrix, const double *sums, int64_t parts) {
    int64_t rows = means->rows, columns = means->columns;
    const float *row_var = means->row_var + matrix * rows;
    double mean = 0;
    for (int64_t column = 0; column < columns; column++) {
        double sum = 0;
        for (int64_t part = 0; part < parts; part++)
            sum += sums[part * columns + column];
        approach(means->col_var + matrix * columns + column, sum / rows, means->share);
    }
    for (int64_t row = 0; row < rows; row++)
        mean += row_var[row];
    mean = mean / rows < means->least ? means->least : mean / rows;
    for (int64_t row = 0; row < rows; row++)
        means->scale[matrix * rows + row] = (float)(row_var[row] / mean);
}

/* Moves the means of some rows, and leaves the sums of their columns. */
static void add_rows(Rows gradient, float *row_var, int64_t first, int64_t last, int64_t columns, double share,
                     double *sums) {
    memset(sums, 0, columns * sizeof *sums);
    for (int64_t row = first; row < last; row++)
        approach(row_var + row, add_row(numbers_of(gradient, row), columns, sums) / columns, share);
}

/* Means of a part: of some rows of the one matrix, or of some whole matrices. */
static void part_means(const Means *means, int64_t part) {
    int64_t rows = means->rows, columns = means->columns;
    double *sums = means->sums + part * columns;
    if (means->matrices == 1) {
        add_rows(means->gradient, means->row_var, rows * part / means->parts, rows * (part + 1) / means->parts, columns,
                 means->share, sums);
        return;
    }
    int64_t last = means->matrices * (part + 1) / means->parts;
    for (int64_t matrix = means->matrices * part / means->parts; matrix < last; matrix++) {
        add_rows(means->gradient, means->row_var, matrix * rows, (matrix + 1) * rows, columns, means->share, sums);
        end_matrix(means, matrix, sums, 1);
    }
}

static void all_means(const Means *means) {
#pragma omp parallel for schedule(static) if (means->matrices * means->rows * means->columns > SMALL)
    for (int64_t part = 0; part < means->parts; part++)
        part_means(means, part);
    if (means->matrices == 1)
        end_matrix(means, 0, means->sums, means->parts);
}

static void move_variance(float *variance, const float *gradient, int64_t count, double share) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        approach(variance + i, (double)gradient[i] * gradient[i], share);
}

static double sum_of_steps(const Steps *steps, int64_t matrices, double *sums) {
    int64_t all = matrices * steps->blocks, parts = least(all, PARTIAL_SUMS);
    double total = 0;
#pragma omp parallel for schedule(static) if (matrices * steps->rows * steps->columns > SMALL)
    for (int64_t part = 0; part < parts; part++) {
        sums[part] = 0;
        for (int64_t block = all * part / parts; block < all * (part + 1) / parts; block++)
            sums[part] += use_block(steps, block, squared, NULL);
    }
    for (int64_t part = 0; part < parts; part++)
        total += sums[part];
    return total;
}

void adafactor(Rows gradient, const double *rate, Rows value, float *row_var, float *col_var, float *variance,
               const int64_t *count, float *scale, double *factor, double *sums, double *squares, int64_t matrices,
               int64_t rows, int64_t columns, int64_t parts, double beta_2_decay, double epsilon_1, double epsilon_2,
               double d, double lr_mult) {
    if (isnan(*rate))
        return;
    double t = (double)(*count + 1), share = pow(t, beta_2_decay), of_value = 0;
    Means means = {gradient, row_var, col_var, scale, sums, matrices, rows, columns, parts, share, epsilon_1};
    Steps steps = {gradient, scale, col_var, variance, rows, columns, row_blocks(rows), epsilon_1};
    add_squares(value, &of_value, squares, matrices * rows, columns);
    if (variance)
        move_variance(variance, gradient.at, columns, share);
    else
        all_means(&means);
    double elements = (double)matrices * rows * columns, lr = *rate * lr_mult, root = 1 / sqrt(t);
    double clip = fmax(1, sqrt(sum_of_steps(&steps, matrices, squares) / elements) / d);
    *factor = fmax(epsilon_2, sqrt(of_value / elements)) * (lr < root ? lr : root) / clip;
}

void adafactor_step(Rows gradient, const double *rate, Rows value, const float *scale, const float *col_var,
                    const float *variance, const double *factor, int64_t *count, int64_t matrices, int64_t rows,
                    int64_t columns, double epsilon_1, double decay, double lr_mult) {
    if (isnan(*rate))
        return;
    ++*count;
    Steps steps = {gradient, scale, col_var, variance, rows, columns, row_blocks(rows), epsilon_1};
    Move move = {value, (float)*factor, (float)(1 - *rate * lr_mult * decay)};
#pragma omp parallel for schedule(static) if (matrices * rows * columns > SMALL)
    for (int64_t block = 0; block < matrices * steps.blocks; block++)
        use_block(&steps, block, moved, &move);
}
