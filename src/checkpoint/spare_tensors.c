#include "checkpoint/spare_tensors.h"

#include "base/compiler.h"
#include "base/os/file.h"

static bool has_ending(const char *name, const char *const *endings, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (file_name_ends(name, endings[i])) return true;
    }
    return false;
}

static enum status check_zeros(bool *is_zero, const struct tensor *t, struct err *err) {
    char buffer[4096];
    uint64_t len = 0;
    *is_zero = true;
    for (uint64_t at = 0; at < t->size_bytes && *is_zero; at += len) {
        len = t->size_bytes - at;
        if (len > sizeof buffer) len = sizeof buffer;
        const char *bytes = byte_source_get(&t->source, at, len, buffer, err);
        if (!bytes) return ERR_IO;
        for (uint64_t i = 0; i < len; i++) *is_zero = *is_zero && bytes[i] == 0;
    }
    return OK;
}

enum status spare_tensor_check(bool *is_spare, const struct tensor *tensor,
                               const struct quantization_config *config, struct err *err) {
    static const char *const tables[] = {".rotary_emb.inv_freq", ".rotary_emb.cos_cached",
                                         ".rotary_emb.sin_cached"};
    static const char *const kv_scales[] = {".q_scale", ".k_scale", ".v_scale",
                                            ".k_proj.output_scale", ".v_proj.output_scale"};
    *is_spare = has_ending(tensor->name, tables, ARRAY_LEN(tables));
    if (config->method == QUANTIZED_NOT) return OK;
    if (has_ending(tensor->name, kv_scales, ARRAY_LEN(kv_scales))) *is_spare = true;
    bool is_bias = tensor->rank == 1 && file_name_ends(tensor->name, ".bias");
    return is_bias ? check_zeros(is_spare, tensor, err) : OK;
}
