/* One safetensors file. Every rule of the format is checked before anything is used.
 * Format: https://github.com/huggingface/safetensors (README, "Format"): 8 bytes little-endian
 * header length, a JSON object {name: {dtype, shape, data_offsets}}, then the data.
 *
  * Checked: the header fits in the file and in 100 MB, begins with '{', and is valid JSON without
 * duplicate names. __metadata__ maps strings to strings. Dtypes are known. Shapes and sizes agree
 * without overflow. The tensors cover the data from its first to its last byte without hole or
 * overlap. Data may be unaligned, and tensors may be empty or of rank 0. As in the reference
 * implementation, other keys of a tensor are ignored. Opening reads only the header; tensors are
 * read from the open file on demand. */
#ifndef CHECKPOINT_SAFETENSORS_H
#define CHECKPOINT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "checkpoint/tensor.h"

struct safetensors;

// Opens and checks a file. Errors name the path, and the tensor where one is at fault.
MUST_USE enum status safetensors_open(struct safetensors **out, const char *path, struct err *err);
// The same over bytes the caller keeps alive; `what` names them in errors.
MUST_USE enum status safetensors_parse(struct safetensors **out, const void *bytes, size_t size,
                                       const char *what, struct err *err);
void safetensors_close(struct safetensors *file); // NULL is fine

size_t safetensors_count(const struct safetensors *file);
// Tensors are numbered in the order of their data.
const struct tensor *safetensors_at(const struct safetensors *file, size_t index);
const struct tensor *safetensors_find(const struct safetensors *file, const char *name);
const char *safetensors_path(const struct safetensors *file); // or `what`
// ERR_IO where the file was written to since it was opened. Call it after the last tensor was read.
MUST_USE enum status safetensors_check_unchanged(const struct safetensors *file, struct err *err);

#endif
