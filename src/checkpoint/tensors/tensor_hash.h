/* A hash by which copies of a checkpoint are told apart without reading all of it. */
#ifndef CHECKPOINT_TENSOR_HASH_H
#define CHECKPOINT_TENSOR_HASH_H

#include "checkpoint/tensor.h"

// Adds a tensor to *hash: its name, type, shape, and samples from its first byte to the last.
MUST_USE enum status tensor_hash(const struct tensor *tensor, uint64_t *hash, struct err *err);

#endif
