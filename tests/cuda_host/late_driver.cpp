// libcuda.so.1 on the host: what `loader.py` calls, declared by CUDA's own header, handed to Python.
#include <cuda.h>

typedef int (*Launch)(CUfunction, const unsigned*, unsigned, CUstream, void**, void**);
static Launch asked = nullptr;

static bool idle = false;

extern "C" void set_launch(Launch launch) { asked = launch; }
// Whether launches are taken and never done.
extern "C" void set_idle(int wanted) { idle = wanted != 0; }

extern "C" CUresult CUDAAPI cuLaunchKernel(
    CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
    unsigned block_z, unsigned shared_bytes, CUstream stream, void** arguments, void** extra) {
    const unsigned extents[] = {grid_x, grid_y, grid_z, block_x, block_y, block_z};
    if (idle) return CUDA_SUCCESS;
    if (!asked) return CUDA_ERROR_NOT_INITIALIZED;
    return (CUresult)asked(function, extents, shared_bytes, stream, arguments, extra);
}

extern "C" CUresult CUDAAPI cuGetErrorString(CUresult error, const char** text) {
    switch (error) {
    case CUDA_ERROR_INVALID_VALUE: *text = "invalid argument"; return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_HANDLE: *text = "invalid resource handle"; return CUDA_SUCCESS;
    default: *text = nullptr; return CUDA_ERROR_INVALID_VALUE;
    }
}
