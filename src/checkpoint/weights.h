/* The weights of a model, from the tensors of its checkpoint. Each is handed out once, with the
 * shape that the model wants. weights_finish then refuses tensors that were not taken. So no weight
 * stays random, is used twice or is silently ignored.
 *
 * Dummy weights have no files. Matrices are a fixed pseudo-random pattern of standard deviation
 * 0.02. Vectors of norms and factors, whose name ends in "norm.weight", "layer_scalar" or "scale",
 * are ones, others zeros. All are BF16, the same on every machine; however large a matrix is, the
 * pattern takes about a megabyte of memory. In a quantized format the linears of layers have
 * pseudo-random codes instead. */
#ifndef CHECKPOINT_WEIGHTS_H
#define CHECKPOINT_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/byte_source.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/matrix_reader.h"
#include "checkpoint/expert_stack.h"
#include "checkpoint/quantized/quantization_config.h"

struct checkpoint;
struct weights; // not thread-safe; the weights it hands out may be read from any thread

struct weight { // what it points to is borrowed until weights_close, a reader until weights_release
    struct byte_source source; // row-major, any alignment
    enum dtype dtype; // BF16, F16 or F32
    // Of a matrix in another format: gives its elements, `dtype` is F32, and `source` is empty.
    const struct matrix_reader *reader;
    uint32_t rank; // 1 or 2
    uint64_t shape[2];
};

// Opens the tensors of the checkpoint, which is needed during this call only.
MUST_USE enum status weights_open(struct weights **out, const struct checkpoint *checkpoint,
                                  struct err *err);
MUST_USE enum status weights_open_dummy(struct weights **out, struct err *err);
void weights_close(struct weights *weights); // NULL is fine
// The format in which config.json says that linears are stored; its list is borrowed. Without this
// call: none.
void weights_set_quantization(struct weights *weights, const struct quantization_config *config);
// How experts of a layer lie in one tensor (expert_stack.h), and how many it must have. Without
// this call: each has its own.
void weights_set_experts(struct weights *weights, enum expert_layout layout, uint32_t num_experts);
// Tensors of the layers from `first` on may remain. Without this call none may.
void weights_ignore_layers(struct weights *weights, uint32_t first, uint32_t count);
// Tensors of models for images or sound may remain. Without this call none may.
void weights_ignore_other_parts(struct weights *weights);

// Whether there is a tensor of this name, or the packed one of a quantized linear. Dummy: yes.
bool weights_has(const struct weights *weights, const char *name);
bool weights_is_dummy(const struct weights *weights); // of weights_open_dummy
// MLX wrote the checkpoint of a model with convolutions (tensors/tensor_table.h). It adds 1 to
// weights of norms that are by 1 + weight.
bool weights_has_mlx_convs(const struct weights *weights);

// Frees what readers handed out so far keep in memory: the weights that have one are read.
void weights_release(struct weights *weights);

// Hands out a tensor and marks it used. One that is missing, has another shape or type, or was
// taken before is an error that names file, tensor and the expected value. Dummy: any name and
// shape, as often as asked; the same name and shape give the same values. A tensor of three
// dimensions may be taken as a matrix: the first two become its rows.
MUST_USE enum status weights_take(struct weights *weights, const char *name, uint32_t rank,
                                  const uint64_t *shape, struct weight *out, struct err *err);
// The form in which a matrix is stored, before it is taken. It has no code if the weights are
// floats or there is no such tensor.
MUST_USE enum status weights_form(const struct weights *weights, const char *name, uint64_t rows,
                                  uint64_t cols, struct matrix_form *out, struct err *err);
// Marks a tensor as used that may be present but only repeats `original`, which has been taken (a
// tied lm_head). If it is present, its shape, type and bytes must be those of the original.
MUST_USE enum status weights_ignore_copy(struct weights *weights, const char *name,
                                         const char *original, uint32_t rank, const uint64_t *shape,
                                         struct err *err);
// Checks that every tensor of the checkpoint has been taken or ignored, but those that may remain
// (spare_tensors.h). Call it when all tensors have been read: ERR_IO where a file was written to
// meanwhile.
MUST_USE enum status weights_finish(const struct weights *weights, struct err *err);
// A hash of the tensors' names, types, shapes and samples of their bytes. Processes on several
// hosts compare it, to notice that their copies of a model differ. Dummy: always the same.
MUST_USE enum status weights_fingerprint(const struct weights *weights, uint64_t *out,
                                         struct err *err);

#endif
