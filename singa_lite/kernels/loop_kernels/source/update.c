/* Updates of optimizers in one pass: gradient, value and state are read once, and value and state written once.
 *
 *     for each part of the value, in any thread:  state as float32;  the rule, element by element;  state kept again
 *
 * A part is a block where state is kept in blocks. Each product is rounded, as NumPy does it, so that SGD gives the
 * same bits there, whether rows of a table are updated alone or all of them. */
#pragma GCC optimize("fp-contract=off")
#include "update.h"

/* Tensors of state at most. */
#define STATES 3

/* What is updated. state: NULL after the last one; codes: of each, read for 8 bits only; t: number of the update. */
typedef struct {
    const float *gradient;
    float *value;
    void *state[STATES];
    const Codes *codes[STATES];
    int64_t t;
} Update;

/* The update of a part: state in float32. */
typedef void (*Rule)(const float *gradient, float *value, float *const *state, int64_t count, const void *numbers);

static void update_part(const Update *update, const Format *format, Part part, Rule rule, const void *numbers) {
    float buffers[STATES][BLOCK], *state[STATES] = {NULL};
    for (int each = 0; each < STATES && update->state[each]; each++)
        state[each] = read_state(update->state[each], format, &part, update->codes[each], buffers[each]);
    rule(update->gradient + part.start, update->value + part.start, state, part.count, numbers);
    for (int each = 0; each < STATES && update->state[each]; each++)
        write_state(update->state[each], format, &part, update->codes[each], update->t, each, state[each]);
}

static void update_parts(const Update *update, Format format, Rule rule, const void *numbers) {
    int64_t parts = parts_of(&format);
#pragma omp parallel for schedule(static) if (format.rows * format.columns > SMALL)
    for (int64_t number = 0; number < parts; number++)
        update_part(update, &format, part_of(&format, number), rule, numbers);
}

typedef struct {
    float rate, momentum, share, decay;
    int is_first, nesterov;
} Sgd;

static void sgd_rule(const float *gradient, float *value, float *const *state, int64_t count, const void *numbers) {
    Sgd by = *(const Sgd *)numbers;
    float *velocity = state[0];
    if (!velocity) {
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            float g = by.decay != 0 ? gradient[i] + value[i] * by.decay : gradient[i];
            value[i] += g * by.rate;
        }
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        float g = by.decay != 0 ? gradient[i] + value[i] * by.decay : gradient[i];
        float moving = by.is_first ? g : velocity[i] * by.momentum + g * by.share;
        float step = by.nesterov ? moving * by.momentum + g : moving;
        velocity[i] = moving;
        value[i] += step * by.rate;
    }
}

void sgd(const float *gradient, const double *rate, float *value, void *velocity, int64_t *count, const void *codes,
         int64_t rows, int64_t columns, int64_t bits, double momentum, double dampening, int64_t nesterov,
         double weight_decay, double lr_mult) {
    if (isnan(*rate))
        return;
    Update update = {gradient, value, {velocity}, {codes}, ++*count};
    float step = (float)(-*rate * lr_mult), share = (float)(1 - dampening);
    Sgd by = {step, (float)momentum, share, (float)weight_decay, *count == 1, nesterov != 0};
    update_parts(&update, format_of(rows, columns, bits), sgd_rule, &by);
}

typedef struct {
    float rate, kept, share, epsilon, decay;
} Squares;

static void squares_rule(const float *gradient, float *value, float *const *state, int64_t count,
                         const void *numbers) {
    Squares by = *(const Squares *)numbers;
    float *squares = state[0];
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        float g = by.decay != 0 ? gradient[i] + value[i] * by.decay : gradient[i];
        float square = squares[i] * by.kept + g * g * by.share;
        squares[i] = square;
        value[i] += g / (sqrtf(square) + by.epsilon) * by.rate;
    }
}

void scaled_by_squares(const float *gradient, const double *rate, float *value, void *squares, int64_t *count,
                       const void *codes, int64_t rows, int64_t columns, int64_t bits, double kept, double share,
                       double epsilon, double weight_decay, double lr_mult) {
    if (isnan(*rate))
        return;
    Update update = {gradient, value, {squares}, {codes}, ++*count};
    float step = (float)(-*rate * lr_mult);
    Squares by = {step, (float)kept, (float)share, (float)epsilon, (float)weight_decay};
    update_parts(&update, format_of(rows, columns, bits), squares_rule, &by);
}

typedef struct {
    float rate, beta_1, beta_2, share_1, share_2, correction, epsilon, decay, shrink;
} Adam;

static void adam_rule(const float *gradient, float *value, float *const *state, int64_t count, const void *numbers) {
    Adam by = *(const Adam *)numbers;
    float *first = state[0], *second = state[1], *largest = state[2];
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        float before = value[i] * by.shrink;
        float g = by.decay != 0 ? gradient[i] + before * by.decay : gradient[i];
        float moment = first[i] * by.beta_1 + g * by.share_1, square = second[i] * by.beta_2 + g * g * by.share_2;
        first[i] = moment;
        second[i] = square;
        if (largest) /* NaN is the largest */
            largest[i] = square = (square > largest[i]) | (square != square) ? square : largest[i];
        value[i] = before + moment / (sqrtf(square) / by.correction + by.epsilon) * by.rate;
    }
}

void adam(const float *gradient, const double *rate, float *value, void *first, void *second, void *largest,
          int64_t *count, const void *codes, const void *square_codes, int64_t rows, int64_t columns, int64_t bits,
          double beta_1, double beta_2, double epsilon, double weight_decay, double decay, double lr_mult) {
    if (isnan(*rate))
        return;
    Update update = {gradient, value, {first, second, largest}, {codes, square_codes, square_codes}, ++*count};
    double t = (double)*count, lr = *rate * lr_mult, top = 1 - pow(beta_1, t), bottom = 1 - pow(beta_2, t);
    Adam by = {(float)(-lr / top),     (float)beta_1,  (float)beta_2,       (float)(1 - beta_1),    (float)(1 - beta_2),
               (float)sqrt(bottom), (float)epsilon, (float)weight_decay, (float)(1 - lr * decay)};
    update_parts(&update, format_of(rows, columns, bits), adam_rule, &by);
}

typedef struct {
    float rate, beta_1, beta_2, share_1, share_2, shrink;
} Lion;

static void lion_rule(const float *gradient, float *value, float *const *state, int64_t count, const void *numbers) {
    Lion by = *(const Lion *)numbers;
    float *momentum = state[0];
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        float g = gradient[i], step = momentum[i] * by.beta_1 + g * by.share_1;
        float sign = step != step ? step : (float)((step > 0) - (step < 0));
        value[i] = value[i] * by.shrink + sign * by.rate;
        momentum[i] = momentum[i] * by.beta_2 + g * by.share_2;
    }
}

void lion(const float *gradient, const double *rate, float *value, void *momentum, int64_t *count, const void *codes,
          int64_t rows, int64_t columns, int64_t bits, double beta_1, double beta_2, double decay, double lr_mult) {
    if (isnan(*rate))
        return;
    Update update = {gradient, value, {momentum}, {codes}, ++*count};
    double lr = *rate * lr_mult;
    Lion by = {(float)-lr,          (float)beta_1, (float)beta_2, (float)(1 - beta_1), (float)(1 - beta_2),
               (float)(1 - lr * decay)};
    update_parts(&update, format_of(rows, columns, bits), lion_rule, &by);
}
