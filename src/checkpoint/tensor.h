/* A named tensor of a checkpoint as it is stored, and the set of all of a checkpoint's tensors. */
#ifndef CHECKPOINT_TENSOR_H
#define CHECKPOINT_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "base/byte_source.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/matrix_reader.h"

enum { TENSOR_RANK_MAX = 8 };

struct tensor {
    const char *name; // NUL-terminated, as the other pointers owned by the file
    const char *path; // of its file, for errors
    enum dtype dtype;
    uint32_t rank;
    uint64_t shape[TENSOR_RANK_MAX]; // [rank]
    size_t size_bytes;
    uint64_t begin; // offset in the file's data, bytes
    struct byte_source source; // its bytes, any alignment
    // Of a matrix whose bytes are not its elements in their order (`dtype` does not matter then):
    // gives these. The set owns it. NULL: the bytes are the elements.
    const struct matrix_reader *reader;
};

// Open files and the tensors in them. A form of checkpoint (checkpoint_form.h) has its own struct
// with this as the first member.
struct tensor_set {
    const struct tensor **tensors; // [count], file by file in the order of their data
    size_t count;
    const char *place; // the file, or the folder of several, in which a missing tensor should be
    // ERR_IO where a file was written to since it was opened.
    enum status (*check_unchanged)(const struct tensor_set *set, struct err *err);
    void (*close)(struct tensor_set *set);
};

#endif
