/* State of updates as it is kept: float32, bfloat16 rounded by chance, or 8 bits in blocks.
 *
 * interface/state_format.py defines the formats. */
#ifndef STATE_FORMAT_H
#define STATE_FORMAT_H

#include "numbers.h"

/* Elements that are updated at a time at most: of a block of 8 bits. */
#define BLOCK 2048
/* Upper halves of the smallest and the largest magnitude that codes are told apart by: 2**-24 and 1. */
#define LEAST_HALF 0x3380
#define ONE_HALF 0x3f80
/* Halves of magnitudes in a table of codes: 0, and those from the smallest to the largest. */
#define HALVES (ONE_HALF - LEAST_HALF + 2)

/* Codes of 8 bits. number: what each stands for. code: by the sign and the upper half of a quotient, the code of the
 * smallest magnitude with that half (upper 16 bits), and the lower half beyond which it is the next one (lower 16). */
typedef struct {
    float number[256];
    uint32_t code[2][HALVES];
} Codes;

/* How the state of a value (rows, columns) is kept. elements: of a chunk; chunks: in a group of rows; group_rows: rows
 * of a group; group_bytes: of 8 bits. One group of chunks has all the value where state is not in blocks. */
typedef struct {
    int64_t bits, rows, columns, elements, chunks, group_rows, group_bytes;
} Format;

/* A part of the value that is updated at a time. group, chunk: which one; start: its first element; count: elements. */
typedef struct {
    int64_t group, chunk, start, count;
} Part;

Format format_of(int64_t rows, int64_t columns, int64_t bits);

/* Parts of the value. */
int64_t parts_of(const Format *format);

Part part_of(const Format *format, int64_t number);

/* Where the part's state is in float32: in place, or read into the buffer. */
float *read_state(void *state, const Format *format, const Part *part, const Codes *codes, float *buffer);

/* Bits of float32's infinity, above which NaN lies, and of bfloat16's quiet NaN. */
#define INFINITE 0x7f800000u
#define QUIET_NAN 0x7fc0

/* A number in bfloat16, rounded up with the probability that the bits cut off give, by a key of the update. */
static inline uint16_t rounded_by_chance(float number, uint32_t key) {
    uint32_t bits = bits_of(number), chance = (bits + key) * 0x9E3779B1u;
    chance = (chance ^ (chance >> 15)) * 0x85EBCA6Bu;
    return (uint16_t)((bits & ~(1u << 31)) > INFINITE ? QUIET_NAN : (bits + (chance >> 16)) >> 16);
}

/* Keep the part's state, which `read_state` gave and an update changed. t, place: which update of the parameter, and
 * which of its states, for rounding by chance. */
void write_state(void *state, const Format *format, const Part *part, const Codes *codes, int64_t t, int64_t place,
                 float *buffer);

#endif
