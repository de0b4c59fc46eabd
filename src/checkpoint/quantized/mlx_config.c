#include "checkpoint/quantized/mlx_config.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"

static enum status check_class(const json_t *root, const char *what, struct err *err) {
    static const char *const classes[] = {
        "Apertus",      "Cohere",  "Cohere2",   "Ernie4_5", "Exaone4",   "Gemma2",
        "Gemma3",       "Glm",     "Glm4",      "Glm4Moe",  "Granite",   "HunYuanDenseV1",
        "HunYuanMoEV1", "Helium",  "InternLM3", "Lfm2",     "Llama",     "MiniMaxM2",
        "Ministral3",   "Mistral", "Mixtral",   "Nemotron", "Olmo2",     "Olmo3",
        "Olmoe",        "Phi",     "Phi3",      "Qwen2",    "Qwen2Moe",  "Qwen3",
        "Qwen3Moe",     "SeedOss", "SmolLM3",   "StableLm", "Starcoder2"};
    static const char ending[] = "ForCausalLM";
    const char *name = json_string_value(json_array_get(jread_get(root, "architectures"), 0));
    for (size_t i = 0; i < ARRAY_LEN(classes) && name; i++) {
        size_t len = strlen(classes[i]);
        if (strncmp(name, classes[i], len) == 0 && strcmp(name + len, ending) == 0) return OK;
    }
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"quantization\" says that the weights are MLX's, which is not supported "
                   "for %.60s",
                   what, name ? name : "a config.json without \"architectures\"");
}

static bool is_size(const char *key) {
    return strcmp(key, "group_size") == 0 || strcmp(key, "bits") == 0 || strcmp(key, "mode") == 0;
}

static enum status fail_key(const char *key, const char *what, struct err *err) {
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"quantization\" has the key \"%.100s\", which is not known", what, key);
}

// The sizes in `object`. A missing one is MLX's own, for a module too.
static enum status read_sizes(struct quantization_config *out, const json_t *object,
                              const char *what, struct err *err) {
    int64_t bits = 4, group = 64;
    const char *mode = NULL;
    enum status status = jread_int(object, "bits", 0, 64, &bits, what, err);
    if (!status) status = jread_int(object, "group_size", 0, 1 << 16, &group, what, err);
    if (!status) status = jread_string(object, "mode", &mode, what, err);
    if (status) return status;
    if (mode && strcmp(mode, "affine") != 0) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"mode\" of \"quantization\" is \"%.60s\", which is not supported; "
                       "want affine",
                       what, mode);
    }
    if (bits < 2 || bits == 7 || bits > 8) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"bits\" of \"quantization\" is %lld, want 2, 3, 4, 5, 6 or 8", what,
                       (long long)bits);
    }
    if (group != 32 && group != 64 && group != 128) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"group_size\" of \"quantization\" is %lld, want 32, 64 or 128", what,
                       (long long)group);
    }
    *out = (struct quantization_config){.method = QUANTIZED_MLX,
                                        .bits = (uint32_t)bits,
                                        .block_rows = 1,
                                        .block_cols = (uint32_t)group};
    return OK;
}

// What "quantization" has for one module.
static enum status read_module(struct quantization_config *out, const char *module,
                               const json_t *value, const char *what, struct err *err) {
    if (json_is_false(value)) { // not quantized
        *out = (struct quantization_config){0};
        return OK;
    }
    if (json_is_true(value)) return OK;
    if (!json_is_object(value)) return fail_key(module, what, err);
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)(uintptr_t)value, key, member) {
        if (!is_size(key)) return fail_key(key, what, err);
    }
    return read_sizes(out, value, what, err);
}

enum status mlx_config_read(struct quantization_config *out, const json_t *object,
                            const json_t *root, const char *what, struct err *err) {
    if (!json_is_object(object)) {
        return err_set(err, ERR_FORMAT, "%s: \"quantization\" is %s, want an object", what,
                       jread_type_name(object));
    }
    enum status status = check_class(root, what, err);
    if (!status) status = read_sizes(out, object, what, err);
    if (status) return status;
    const struct quantization_config all = *out;
    out->groups = calloc(json_object_size(object) + 1, sizeof *out->groups);
    if (!out->groups) return err_nomem(err, "quantization");
    out->groups[out->num_groups++] = all;
    out->targets.keeps_order = true;
    status = module_targets_add(&out->targets, "Linear", 0, what, err);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        if (status) break;
        if (is_size(key)) continue;
        struct quantization_config *group = &out->groups[out->num_groups];
        *group = all;
        status = read_module(group, key, value, what, err);
        if (!status) status = module_targets_add(&out->targets, key, out->num_groups++, what, err);
    }
    return status;
}
