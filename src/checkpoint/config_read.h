/* Reads a configuration's values and checks their ranges, on top of jread. Where a value is missing
 * or null, *out keeps its default, unless the function says something else. */
#ifndef CHECKPOINT_CONFIG_READ_H
#define CHECKPOINT_CONFIG_READ_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct model_config;

// An integer in [min, max].
MUST_USE enum status config_read_u32(const json_t *object, const char *key, uint32_t min,
                                     uint32_t max, uint32_t *out, const char *what,
                                     struct err *err);
// The same; required.
MUST_USE enum status config_require_u32(const json_t *object, const char *key, uint32_t min,
                                        uint32_t max, uint32_t *out, const char *what,
                                        struct err *err);
// A number with min <= value <= max.
MUST_USE enum status config_read_double(const json_t *object, const char *key, double min,
                                        double max, double *out, const char *what, struct err *err);
// True or false. Null is false, as in Python, whatever *out was.
MUST_USE enum status config_read_bool(const json_t *object, const char *key, bool *out,
                                      const char *what, struct err *err);
// Sets flags[n] to false for each number n in a list of layers' numbers; without the key nothing.
MUST_USE enum status config_clear_layers(const json_t *object, const char *key, uint32_t num_layers,
                                         bool *flags, const char *what, struct err *err);
// Reads "eos_token_id": an id, a list of ids, null or missing. Adds ids that `config` does not have
// yet.
MUST_USE enum status config_read_eos(const json_t *object, struct model_config *config,
                                     const char *what, struct err *err);
// Parses `text`, which must be one JSON object. The word Infinity becomes this string.
#define CONFIG_INFINITY "inf"
MUST_USE enum status config_read_object(json_t **out, const char *text, size_t len,
                                        const char *what, struct err *err);

#endif
