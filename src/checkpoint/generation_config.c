/* generation_config.json. Only the EOS ids and the parameters of our sampler are read; the rest
 * configures transformers' own generate function (caches, beams, lengths). */
#include <stdint.h>

#include "base/jread.h"
#include "checkpoint/config_read.h"
#include "checkpoint/model_config.h"

static enum status read_sampling(struct generation_config *generation, const json_t *root,
                                 const char *what, struct err *err) {
    const double tiny = 1e-6;
    const struct {
        const char *key;
        double min, max;
        float *out;
        bool *has;
    } numbers[] = {
        {"temperature", 0, 100, &generation->temperature, &generation->has_temperature},
        {"top_p", tiny, 1, &generation->top_p, &generation->has_top_p},
        {"min_p", 0, 1, &generation->min_p, &generation->has_min_p},
        {"repetition_penalty", tiny, 10, &generation->repetition_penalty,
         &generation->has_repetition_penalty},
    };
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        double value = 0;
        enum status status = config_read_double(root, numbers[i].key, numbers[i].min,
                                                numbers[i].max, &value, what, err);
        if (status) return status;
        *numbers[i].out = (float)value;
        *numbers[i].has = jread_get(root, numbers[i].key) != NULL;
    }
    int64_t top_k = 0;
    enum status status = jread_int(root, "top_k", -1, INT32_MAX, &top_k, what, err);
    generation->top_k = (int32_t)top_k;
    generation->has_top_k = jread_get(root, "top_k") != NULL;
    return status;
}

enum status generation_config_parse(struct model_config *config,
                                    struct generation_config *generation, const char *text,
                                    size_t len, const char *what, struct err *err) {
    *generation = (struct generation_config){0};
    json_t *root = NULL;
    enum status status = config_read_object(&root, text, len, what, err);
    if (status) return status;
    bool do_sample = true;
    status = read_sampling(generation, root, what, err);
    if (!status) status = jread_bool(root, "do_sample", &do_sample, what, err);
    if (!status && !do_sample) {
        generation->has_temperature = true;
        generation->temperature = 0;
    }
    if (!status) status = config_read_eos(root, config, what, err);
    json_decref(root);
    if (status) *generation = (struct generation_config){0};
    return status;
}
