/* From how many bytes of a layer's weights on layers/all_layers.cu runs the layers. In a file of
 * its own, so that tests of small models can link another limit. */
#ifndef BACKEND_CUDA_LAYERS_LAYERS_BYTES_MIN_H
#define BACKEND_CUDA_LAYERS_LAYERS_BYTES_MIN_H

#include <stddef.h>

size_t cuda_layers_bytes_min(void);

#endif
