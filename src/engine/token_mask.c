#include "engine/token_mask.h"

#include <stdlib.h>
#include <string.h>

static void ban(uint32_t *words, int32_t id) {
    words[id / 32] &= ~(1u << (id % 32));
}

static enum status init_ending(struct token_mask *mask, const struct nvllm_sampling_params *params,
                               const struct model_config *config, struct err *err) {
    size_t num_ids = config->num_eos_token_ids + params->num_stop_token_ids;
    if (!params->min_tokens || !num_ids) return OK;
    mask->ending = malloc(num_ids * sizeof *mask->ending);
    if (!mask->ending) return err_nomem(err, "min_tokens");
    for (uint32_t i = 0; i < config->num_eos_token_ids; i++) {
        int32_t id = config->eos_token_ids[i];
        // A model may name an id that it cannot generate.
        if (id >= 0 && (uint32_t)id < config->vocab_size) mask->ending[mask->num_ending++] = id;
    }
    for (size_t i = 0; i < params->num_stop_token_ids; i++) {
        mask->ending[mask->num_ending++] = params->stop_token_ids[i];
    }
    return OK;
}

enum status token_mask_init(struct token_mask *mask, const struct nvllm_sampling_params *params,
                            const struct model_config *config, struct err *err) {
    *mask = (struct token_mask){.num_words = (config->vocab_size + 31) / 32,
                                .min_tokens = (uint32_t)params->min_tokens};
    enum status status = init_ending(mask, params, config, err);
    if (status) token_mask_fini(mask);
    return status;
}

void token_mask_fini(struct token_mask *mask) {
    free(mask->always);
    free(mask->ending);
    *mask = (struct token_mask){0};
}

static bool bans_ending(const struct token_mask *mask, uint32_t num_generated) {
    return mask->num_ending && num_generated < mask->min_tokens;
}

bool token_mask_is_needed(const struct token_mask *mask, uint32_t num_generated) {
    return mask->always || bans_ending(mask, num_generated);
}

void token_mask_write(const struct token_mask *mask, uint32_t num_generated, uint32_t *out) {
    size_t bytes = mask->num_words * sizeof *out;
    if (mask->always) {
        memcpy(out, mask->always, bytes);
    } else {
        memset(out, 0xff, bytes);
    }
    if (!bans_ending(mask, num_generated)) return;
    for (size_t i = 0; i < mask->num_ending; i++) ban(out, mask->ending[i]);
}
