// Convolutions whose groups have one channel each.
#pragma once
#include "images.cuh"

// multiplier: filters of a channel. positions: of what the threads of a kernel write.
struct Depthwise {
    Images x, y;
    Window window;
    Positions positions;
    int multiplier;
    Divisor stride_h, stride_w;
};
