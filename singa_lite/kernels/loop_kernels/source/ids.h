/* Ids that name classes, of any integer type. */
#ifndef IDS_H
#define IDS_H

#include "numbers.h"

/* Number `i` of ids in the order of the box, whose steps are in bytes. type: bytes of an id, negative if signed. */
static inline int64_t id_at(Box ids, Extents extents, int64_t i) {
    const void *at = (const char *)ids.at + place(ids, extents, i);
    switch (ids.type) {
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

#endif
