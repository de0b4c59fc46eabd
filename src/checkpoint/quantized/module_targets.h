/* The modules that a configuration of quantized weights names, as compressed-tensors does: "re:"
 * and a regular expression that the beginning of a module's name matches, a whole name, or the
 * class of a module. All modules here are of the class Linear. */
#ifndef CHECKPOINT_QUANTIZED_MODULE_TARGETS_H
#define CHECKPOINT_QUANTIZED_MODULE_TARGETS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum target_kind { TARGET_NAME, TARGET_PATTERN, TARGET_CLASS, TARGET_NONE };

struct regex;

struct module_target {
    char *text; // as it is written
    uint32_t owner; // the caller's number
    struct regex *pattern; // NULL: a name or a class
};

// All-zero is an empty list.
struct module_targets {
    struct module_target *items; // [count]
    uint32_t count;
    bool keeps_order; // in which they were added; false: that of their texts
};

// Copies the text. A text that is there already gets the new owner. ERR_FORMAT, ERR_UNSUPPORTED: it
// is no regular expression, or uses what is not supported.
MUST_USE enum status module_targets_add(struct module_targets *targets, const char *text,
                                        uint32_t owner, const char *what, struct err *err);
void module_targets_fini(struct module_targets *targets);

// How the module is named, the first kind before the others, and of several texts of a kind by the
// first one. *owner: that text's, unless the kind is NONE. ERR_INVALID: a pattern takes too long.
MUST_USE enum status module_targets_find(enum target_kind *kind, uint32_t *owner,
                                         const struct module_targets *targets, const char *module,
                                         struct err *err);

#endif
