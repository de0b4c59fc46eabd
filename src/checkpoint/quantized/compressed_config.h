/* The "quantization_config" of compressed-tensors, and what the readers of all methods share. */
#ifndef CHECKPOINT_QUANTIZED_COMPRESSED_CONFIG_H
#define CHECKPOINT_QUANTIZED_COMPRESSED_CONFIG_H

#include "checkpoint/quantized/quantization_config.h"

MUST_USE enum status compressed_config_read(struct quantization_config *out, const json_t *object,
                                            const char *what, struct err *err);

// quantization_config.c. ERR_UNSUPPORTED names a key that is not among `known`. A key whose value
// is null counts as absent.
MUST_USE enum status quantization_config_check_keys(const json_t *object, const char *const *known,
                                                    size_t num_known, const char *what,
                                                    struct err *err);
// *found is the index of a string's value, and stays where the key is missing; other values are
// refused.
MUST_USE enum status quantization_config_want(const json_t *object, const char *key,
                                              const char *const *values, size_t num_values,
                                              size_t *found, const char *what, struct err *err);
// The texts that a key may have.
struct wanted {
    const char *key;
    const char *values[4]; // up to the first NULL
    size_t *found; // which of them it has; stays as it is where the key is absent; NULL: not asked
};
MUST_USE enum status quantization_config_want_all(const json_t *object, const struct wanted *list,
                                                  size_t count, const char *what, struct err *err);
// "group_size", of a row each.
MUST_USE enum status quantization_config_group(struct quantization_config *out,
                                               const json_t *object, const char *what,
                                               struct err *err);
// A list [rows, columns]; a missing one changes nothing.
MUST_USE enum status quantization_config_block(struct quantization_config *out,
                                               const json_t *object, const char *key,
                                               const char *what, struct err *err);
// Adds a list of names to out->skipped.
MUST_USE enum status quantization_config_skip_list(struct quantization_config *out,
                                                   const json_t *object, const char *key,
                                                   const char *what, struct err *err);

#endif
