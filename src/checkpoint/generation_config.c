/* generation_config.json. Only the EOS ids and the parameters of our sampler are read; the rest
 * configures transformers' own generate function (caches, beams, lengths). */
#include <stdint.h>

#include "base/json/jread.h"
#include "checkpoint/config_read.h"
#include "checkpoint/model_config.h"

static enum status read_sampling(struct generation_config *generation, const json_t *root,
                                 const char *what, struct err *err) {
    enum status status = OK;
    double real = 0;
    int64_t integer = 0;
#define READ_FLOAT(key, min, max) config_read_double(root, key, min, max, &real, what, err)
#define READ_INT(key, min, max) jread_int(root, key, min, max, &integer, what, err)
#define VALUE_FLOAT (float)real
#define VALUE_INT (int32_t) integer
#define READ(type, name, fallback, min, max, help)                                                 \
    if (!status && jread_get(root, #name)) {                                                       \
        status = READ_##type(#name, min, max);                                                     \
        generation->name = VALUE_##type;                                                           \
        generation->has_##name = true;                                                             \
    }
    NVLLM_MODEL_PARAMS(READ)
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
