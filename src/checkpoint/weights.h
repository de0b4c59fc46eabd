/* The named tensors of a checkpoint folder, whichever files they are in: model.safetensors, or the
 * shards of model.safetensors.index.json. Every tensor is handed out exactly once with the shape
 * the model wants; weights_finish then refuses tensors that nobody asked for, so that nothing is
 * ever left random, doubled or ignored.
 *
 * Where a folder has both, model.safetensors wins and the index is not read, as in transformers. An
 * index must agree with its shards both ways: each listed tensor is in the shard named, each tensor
 * of a shard is listed there. Its "metadata" is not used.
 *
 * Dummy weights (no files): matrices are a fixed pseudo-random pattern of standard deviation 0.02,
 * vectors whose name ends in "norm.weight" are ones, other vectors zeros; no memory is used for
 * them. All are BF16, the same on every machine. */
#ifndef CHECKPOINT_WEIGHTS_H
#define CHECKPOINT_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/byte_source.h"
#include "base/dtype.h"
#include "base/err.h"

struct weights; // not thread-safe; what it handed out may be read from any thread

struct weight {
    struct byte_source source; // borrowed until weights_close; row-major, any alignment
    enum dtype dtype; // BF16, F16 or F32
    uint32_t rank; // 1 or 2
    uint64_t shape[2];
};

MUST_USE enum status weights_open(struct weights **out, const char *folder, struct err *err);
MUST_USE enum status weights_open_dummy(struct weights **out, struct err *err);
void weights_close(struct weights *weights); // NULL is fine

bool weights_has(const struct weights *weights, const char *name); // dummy: always true
// Hands out a tensor and marks it used. Missing, wrong shape or type,
// or taken before: an error naming file, tensor and what was expected. Dummy: any name, any shape,
// as often as asked; the same name and shape give the same values.
MUST_USE enum status weights_take(struct weights *weights, const char *name, uint32_t rank,
                                  const uint64_t *shape, struct weight *out, struct err *err);
// Marks a tensor that is legally present but not needed, because it repeats `original`, which has
// been taken (a tied lm_head). If present it is checked: the shape, and type and bytes to be the
// original's.
MUST_USE enum status weights_ignore_copy(struct weights *weights, const char *name,
                                         const char *original, uint32_t rank, const uint64_t *shape,
                                         struct err *err);
// Every tensor of the checkpoint must have been taken or ignored by now, but for the rotary_emb
// buffers that old checkpoints carry: the configuration says what is in them. To be called when all
// have been read: ERR_IO where a file was written to meanwhile.
MUST_USE enum status weights_finish(const struct weights *weights, struct err *err);
size_t weights_total_bytes(const struct weights *weights); // data bytes of all tensors; dummy: 0

#endif
