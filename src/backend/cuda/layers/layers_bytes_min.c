#include "backend/cuda/layers/layers_bytes_min.h"

// With fewer bytes to read, the blocks lose more by waiting for each other than the hand-over
// between separate kernels costs (doc/kernels-cuda.md).
size_t cuda_layers_bytes_min(void) {
    return (size_t)64 << 20;
}
