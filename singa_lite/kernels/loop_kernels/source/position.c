/* Rotary positions: pairs of numbers (a, b) turned by the angles of their positions, in one pass.
 *
 *     a' = a * cosine - b * sine,   b' = b * cosine + a * sine;   backward the sine is negative */
#include "position.h"

/* A line of x, of the table or of y. near: where its first numbers begin; far: where the second ones of pairs do. */
typedef struct {
    Box box;
    int64_t near, far;
} Line;

static float number_at(Box box, int64_t start, int64_t i) {
    return element(box.at, is_half(box), start + i * box.steps[AXES - 1]);
}

static void set_number(Box box, int64_t start, int64_t i, float number) {
    set_element(box.at, is_half(box), start + i * box.steps[AXES - 1], number);
}

static void turn(Line x, Line angle, Line y, int64_t count, float sign) {
    for (int64_t i = 0; i < count; i++) {
        float a = number_at(x.box, x.near, i), b = number_at(x.box, x.far, i);
        float c = number_at(angle.box, angle.near, i), s = sign * number_at(angle.box, angle.far, i);
        set_number(y.box, y.near, i, a * c - b * s);
        set_number(y.box, y.far, i, b * c + a * s);
    }
}

/* The same of float32 without gaps. */
static void turn_plain(Line x, Line angle, Line y, int64_t count, float sign) {
    const float *near = (float *)x.box.at + x.near, *far = (float *)x.box.at + x.far;
    const float *cosine = (float *)angle.box.at + angle.near, *sine = (float *)angle.box.at + angle.far;
    float *first = (float *)y.box.at + y.near, *second = (float *)y.box.at + y.far;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        float a = near[i], b = far[i], c = cosine[i], s = sign * sine[i];
        first[i] = a * c - b * s;
        second[i] = b * c + a * s;
    }
}

static int is_plain(Box x) { return !is_half(x) && x.steps[AXES - 1] == 1; }

static Line line_of(Box box, Extents extents, int64_t line, int64_t far) {
    int64_t near = line_start(box, extents, line);
    return (Line){box, near, near + far};
}

static Line next(Line line) {
    int64_t step = line.box.steps[AXES - 2];
    return (Line){line.box, line.near + step, line.far + step};
}

void rotary(Box x, Box table, Box y, Extents extents, int64_t far_of_x, int64_t sine, int64_t far_of_y,
            int64_t is_inverse) {
    int64_t inner = extents.of[AXES - 2], lines = line_count(extents), count = extents.of[AXES - 1];
    float sign = is_inverse ? -1 : 1;
    int plain = is_plain(x) && is_plain(table) && is_plain(y);
#pragma omp parallel for schedule(static) if (lines * count > SMALL)
    for (int64_t line = 0; line < lines; line += inner) {
        Line from = line_of(x, extents, line, far_of_x), angle = line_of(table, extents, line, sine);
        Line to = line_of(y, extents, line, far_of_y);
        for (int64_t i = 0; i < inner; i++, from = next(from), angle = next(angle), to = next(to))
            if (plain)
                turn_plain(from, angle, to, count, sign);
            else
                turn(from, angle, to, count, sign);
    }
}
