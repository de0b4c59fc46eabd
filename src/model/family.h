/* What distinguishes one model family from another inside the one forward pass (decoder.c). A
 * family is a table entry; see doc/design.md for how the decoder reads it. */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include <stdbool.h>

#include "base/err.h"
#include "checkpoint/model_config.h"

enum bias_rule {
    BIAS_NEVER,
    BIAS_ALWAYS,
    BIAS_BY_CONFIG, // config.json's attention_bias, false when absent
};

struct model_family {
    const char *architecture; // config.json's architectures[0]
    bool qk_norm; // RMS norm of every q and k head before the rotary embedding
    enum bias_rule qkv_bias;
    enum bias_rule o_bias;
};

// What the table entry and the config come to for one model.
struct family_traits {
    bool qk_norm;
    bool qkv_bias;
    bool o_bias;
};

// ERR_UNSUPPORTED names the architecture and lists the supported ones, or names the config field
// that the family's forward pass does not run.
MUST_USE enum status family_resolve(struct family_traits *out, const struct model_config *config,
                                    struct err *err);

extern const struct model_family family_qwen3;

#endif
