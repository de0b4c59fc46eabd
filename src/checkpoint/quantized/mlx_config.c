#include "checkpoint/quantized/mlx_config.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"

// The first is MLX's own where the key is missing. The others have one size each.
static const struct {
    const char *name;
    int64_t bits, group;
} modes[] = {{"affine", 4, 64}, {"mxfp4", 4, 32}, {"mxfp8", 8, 32}, {"nvfp4", 4, 16}};

static bool is_size(const char *key) {
    static const char *const keys[] = {"group_size", "bits", "mode", "global_scale"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (strcmp(key, keys[i]) == 0) return true;
    }
    return false;
}

static enum status fail_key(const char *key, const char *what, struct err *err) {
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"quantization\" has the key \"%.100s\", which is not known", what, key);
}

static enum status find_mode(size_t *out, const json_t *object, const char *what, struct err *err) {
    const char *name = NULL;
    enum status status = jread_string(object, "mode", &name, what, err);
    for (*out = 0; *out < ARRAY_LEN(modes) && !status; ++*out) {
        if (!name || strcmp(modes[*out].name, name) == 0) return OK;
    }
    if (status) return status;
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"mode\" of \"quantization\" is \"%.60s\", which is not supported; want "
                   "affine, mxfp4, mxfp8 or nvfp4",
                   what, name);
}

// Codes that are floats have the sizes of their mode.
static enum status read_floats(struct quantization_config *out, size_t mode, int64_t bits,
                               int64_t group, const char *what, struct err *err) {
    if (bits != modes[mode].bits || group != modes[mode].group) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"bits\" and \"group_size\" of \"quantization\" are %lld and %lld, "
                       "want %lld and %lld for %s",
                       what, (long long)bits, (long long)group, (long long)modes[mode].bits,
                       (long long)modes[mode].group, modes[mode].name);
    }
    *out = (struct quantization_config){.method = QUANTIZED_MLX_FLOATS,
                                        .bits = (uint32_t)bits,
                                        .block_rows = 1,
                                        .block_cols = (uint32_t)group,
                                        .is_symmetric = true};
    return OK;
}

// The sizes in `object`. A missing one is MLX's own, for a module too.
static enum status read_sizes(struct quantization_config *out, const json_t *object,
                              const char *what, struct err *err) {
    size_t mode = 0;
    enum status status = find_mode(&mode, object, what, err);
    if (status) return status;
    int64_t bits = modes[mode].bits, group = modes[mode].group;
    bool has_global = false; // the tensor says it too
    status = jread_int(object, "bits", 0, 64, &bits, what, err);
    if (!status) status = jread_int(object, "group_size", 0, 1 << 16, &group, what, err);
    if (!status) status = jread_bool(object, "global_scale", &has_global, what, err);
    if (status) return status;
    if (mode) {
        status = read_floats(out, mode, bits, group, what, err);
        out->has_global_scale = has_global;
        return status;
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

enum status mlx_config_read(struct quantization_config *out, const json_t *object, const char *what,
                            struct err *err) {
    if (!json_is_object(object)) {
        return err_set(err, ERR_FORMAT, "%s: \"quantization\" is %s, want an object", what,
                       jread_type_name(object));
    }
    enum status status = read_sizes(out, object, what, err);
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
