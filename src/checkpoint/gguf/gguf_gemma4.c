/* Gemma 4 in a file's metadata: layers with a window and those without one have heads of their own.
 * The keys without "_swa" are about the latter. */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/json_out.h"
#include "checkpoint/gguf/file/gguf_read.h"
#include "checkpoint/gguf/gguf_model.h"

// Of a list for the layers, or of one number for all of them, that of the first layer with a window
// and that of the first without. They stay as they are where there is no key, or no such layer.
static enum status read_both(const struct gguf *gguf, const struct gguf_model *model,
                             const char *name, int64_t *with, int64_t *without, struct err *err) {
    char key[GGUF_KEY_MAX];
    struct gguf_value value;
    gguf_model_key(model, name, key, sizeof key);
    if (!gguf_find(gguf, key, &value)) return OK;
    bool is_list = value.is_array;
    bool is_good =
        value.type != GGUF_STRING && (!is_list || value.count >= (uint64_t)model->num_layers);
    int64_t found[2] = {0, 0};
    for (uint32_t i = 0; i < model->num_layers && is_good; i++) {
        bool slides = false;
        int64_t number = 0;
        enum status status = gguf_layer_slides(&slides, gguf, model, i, err);
        if (status) return status;
        is_good = gguf_integer(&value, is_list ? i : 0, &number) && number > 0 &&
                  number <= INT32_MAX && (!found[slides] || found[slides] == number);
        found[slides] = number;
    }
    if (!is_good) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"%s\" is not one number for layers with a window and one for the "
                       "others",
                       gguf_path(gguf), key);
    }
    if (found[1]) *with = found[1];
    if (found[0]) *without = found[0];
    return OK;
}

static enum status write_kv_heads(const struct gguf_files *files, const struct gguf_model *model,
                                  int64_t num_shared, struct json_out *out, struct err *err) {
    int64_t with = 0, without = 0;
    enum status status =
        read_both(files->files[0], model, "attention.head_count_kv", &with, &without, err);
    if (status) return status;
    if (!with) with = without;
    if (!without) without = with;
    if (with) {
        json_out_rawf(out, ", \"num_key_value_heads\": %lld, \"num_global_key_value_heads\": %lld",
                      (long long)with, (long long)without);
    }
    bool has_keys_as_values = false;
    for (uint32_t i = 0; i < model->num_layers - num_shared; i++) {
        char name[64];
        bool slides = false;
        status = gguf_layer_slides(&slides, files->files[0], model, i, err);
        if (status) return status;
        snprintf(name, sizeof name, "blk.%u.attn_v.weight", i);
        has_keys_as_values |= !slides && !gguf_files_find(files, name);
    }
    json_out_rawf(out, ", \"attention_k_eq_v\": %s", has_keys_as_values ? "true" : "false");
    return OK;
}

// The MLP's width: a number, or a list, in which layers at the end, which read the keys of others,
// have twice as much.
static enum status write_widths(const struct gguf *gguf, const struct gguf_model *model,
                                int64_t num_shared, struct json_out *out, struct err *err) {
    static const char name[] = "feed_forward_length";
    char key[GGUF_KEY_MAX];
    struct gguf_value value;
    gguf_model_key(model, name, key, sizeof key);
    if (!gguf_find(gguf, key, &value)) return gguf_missing(gguf, key, err);
    int64_t first = 0, last = 0, num_layers = value.is_array ? model->num_layers : 1;
    bool is_good = value.type != GGUF_STRING && value.count >= (uint64_t)num_layers &&
                   gguf_integer(&value, 0, &first) &&
                   gguf_integer(&value, (uint64_t)num_layers - 1, &last) && first > 0 &&
                   first <= INT32_MAX / 2 && (last == first || last == 2 * first);
    for (int64_t i = 0; i < num_layers && is_good; i++) {
        int64_t width = 0;
        bool is_shared = value.is_array && i >= model->num_layers - num_shared;
        is_good = gguf_integer(&value, (uint64_t)i, &width) && width == (is_shared ? last : first);
    }
    if (!is_good) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"%s\" is not one number, with twice as much in the last %lld layers",
                       gguf_path(gguf), key, (long long)num_shared);
    }
    json_out_rawf(out, ", \"intermediate_size\": %lld, \"use_double_wide_mlp\": %s",
                  (long long)first, last == first ? "false" : "true");
    return OK;
}

// The second embedding has the rows of the first.
static void write_layer_vocabulary(const struct gguf_files *files, struct json_out *out) {
    const struct gguf_tensor *table = gguf_files_find(files, "per_layer_token_embd.weight");
    if (!table || table->rank != 2) return; // loading says that it is missing
    json_out_rawf(out, ", \"vocab_size_per_layer_input\": %llu",
                  (unsigned long long)table->shape[0]);
}

enum status gguf_write_gemma4(const struct gguf_files *files, const struct gguf_model *model,
                              struct json_out *out, struct err *err) {
    const struct gguf *gguf = files->files[0];
    int64_t num_shared = 0, input_size = 0;
    double softcap = 0;
    char key[GGUF_KEY_MAX];
    gguf_model_key(model, "attention.shared_kv_layers", key, sizeof key);
    enum status status = gguf_read_int(gguf, key, 0, model->num_layers - 1, &num_shared, err);
    gguf_model_key(model, "embedding_length_per_layer_input", key, sizeof key);
    if (!status) status = gguf_read_int(gguf, key, 0, INT32_MAX, &input_size, err);
    gguf_model_key(model, "final_logit_softcapping", key, sizeof key);
    if (!status) status = gguf_read_real(gguf, key, &softcap, err);
    if (status) return status;
    if (softcap < 0) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is %.9g, want 0 (no limit) or more",
                       gguf_path(gguf), key, softcap);
    }
    json_out_rawf(out,
                  ", \"num_kv_shared_layers\": %lld, \"hidden_size_per_layer_input\": %lld, "
                  "\"global_head_dim\": %lld, \"enable_moe_block\": %s",
                  (long long)num_shared, (long long)input_size, (long long)model->global_head_dim,
                  model->experts ? "true" : "false");
    if (softcap > 0) {
        json_out_raw(out, ", \"final_logit_softcapping\": ");
        json_out_float(out, (float)softcap);
    }
    write_layer_vocabulary(files, out);
    status = write_widths(gguf, model, num_shared, out, err);
    return status ? status : write_kv_heads(files, model, num_shared, out, err);
}

// The first frequencies are those of the rotation; the others are divided by so much that nothing
// is rotated.
enum status gguf_write_proportional(const struct gguf *gguf, const float *divisors, uint32_t num,
                                    struct json_out *out, struct err *err) {
    uint32_t rotated = 0;
    while (rotated < num && divisors[rotated] == 1.0f) rotated++;
    for (uint32_t i = rotated; i < num; i++) {
        if (divisors[i] >= 1e20f) continue;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"rope_freqs.weight\" is not 1 of the first frequencies and large of "
                       "the others",
                       gguf_path(gguf));
    }
    json_out_rawf(out, ", \"rope_type\": \"proportional\", \"partial_rotary_factor\": %.17g",
                  (double)rotated / num);
    return OK;
}
