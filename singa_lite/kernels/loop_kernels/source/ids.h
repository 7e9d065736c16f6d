/* Ids that name classes, of any integer type. */
#ifndef IDS_H
#define IDS_H

#include "numbers.h"

/* The id that lies there. type: its bytes, negative if it has a sign. */
static inline int64_t read_id(const void *at, int64_t type) {
    switch (type) {
    case -8:
        return *(const int64_t *)at;
    case -4:
        return *(const int32_t *)at;
    case -2:
        return *(const int16_t *)at;
    case -1:
        return *(const int8_t *)at;
    case 4:
        return *(const uint32_t *)at;
    case 2:
        return *(const uint16_t *)at;
    case 1:
        return *(const uint8_t *)at;
    default:
        return (int64_t)(*(const uint64_t *)at);
    }
}

/* Number `i` of ids in the order of the box, whose steps are in bytes and whose type is as in `read_id`. */
static inline int64_t id_at(Box ids, Extents extents, int64_t i) {
    return read_id((const char *)ids.at + place(ids, extents, i), ids.type);
}

#endif
