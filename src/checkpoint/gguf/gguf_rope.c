/* The rotation. Llama 3's scaling is stored as its result: rope_freqs.weight has what each
 * frequency is divided by. The parameters follow from it: between the two ends the inverse divisor
 * is linear in the frequency (model/rope.c has the formula). Only low / original and high /
 * original count, so `original` is the one of the published models. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/json_out.h"
#include "checkpoint/gguf/file/gguf_read.h"
#include "checkpoint/gguf/gguf_model.h"

static const double pi = 3.14159265358979323846;
static const double original = 8192;

enum { ROPE_PAIRS_MAX = 256 }; // of Phi-3's lists

struct llama3 {
    double factor, low, high;
};

// Keys that are read here, or whose only supported value is `neutral`.
static const struct {
    const char *key;
    bool is_read;
    double neutral;
} rope_keys[] = {
    {"freq_base", true, 0},
    {"freq_base_swa", true, 0},
    {"dimension_count", true, 0},
    {"dimension_count_swa", true, 0},
    {"scale_linear", true, 0},
    {"scaling.type", true, 0},
    {"scaling.factor", true, 0},
    {"scaling.original_context_length", true, 0},
    {"scaling.finetuned", true, 0}, // a note about how the model was made
    {"scaling.yarn_beta_fast", true, 0},
    {"scaling.yarn_beta_slow", true, 0},
    {"scaling.attn_factor", false, 1},
    {"scaling.yarn_attn_factor", true, 0},
    {"scaling.yarn_ext_factor", false, 1},
    {"scaling.yarn_log_multiplier", true, 0},
};

static enum status check_keys(const struct gguf *gguf, const struct gguf_model *model,
                              struct err *err) {
    char prefix[64], full[GGUF_KEY_MAX];
    snprintf(prefix, sizeof prefix, "%s.rope.", model->name);
    for (size_t i = 0; i < gguf_num_values(gguf); i++) {
        struct gguf_string key = gguf_key(gguf, i);
        if (!gguf_string_begins(key, prefix)) continue;
        bool is_good = false;
        for (size_t k = 0; k < ARRAY_LEN(rope_keys) && !is_good; k++) {
            struct gguf_value value;
            snprintf(full, sizeof full, "%s%s", prefix, rope_keys[k].key);
            if (!gguf_string_is(key, full) || !gguf_find(gguf, full, &value)) continue;
            is_good = rope_keys[k].is_read || (!value.is_array && value.type != GGUF_STRING &&
                                               gguf_real(&value, 0) == rope_keys[k].neutral);
        }
        // Positions of text are the same in all sections.
        snprintf(full, sizeof full, "%sdimension_sections", prefix);
        is_good = is_good || (model->has_sections && gguf_string_is(key, full));
        snprintf(full, sizeof full, "%sscaling.attn_factor", prefix);
        is_good = is_good || (model->has_longrope && gguf_string_is(key, full)); // write_long
        if (is_good) continue;
        return err_set(err, ERR_UNSUPPORTED, "%s: \"%.*s\" is not supported, or not its value",
                       gguf_path(gguf), (int)key.len, key.text);
    }
    return OK;
}

static double frequency_of(double theta, uint32_t i, uint32_t num) {
    return pow(theta, -(double)i / num);
}

static double divisor_of(const struct llama3 *p, double frequency) {
    double wavelength = 2 * pi / frequency;
    if (wavelength < original / p->high) return 1;
    if (wavelength > original / p->low) return p->factor;
    double smooth = (original / wavelength - p->low) / (p->high - p->low);
    return 1 / ((1 - smooth) / p->factor + smooth);
}

// Finds the parameters that give these divisors [num]. The divisors rise from 1 to the factor; the
// caller checks the result.
static struct llama3 fit(const float *divisors, uint32_t num, double theta) {
    struct llama3 p = {.factor = (double)divisors[num - 1]};
    double first_x = 0, first_s = 0, last_x = 0, last_s = 0; // of those between the ends
    double shorter = 0, longer = 0; // the last one that is 1, the first that is the factor
    uint32_t between = 0;
    for (uint32_t i = 0; i < num; i++) {
        double x = original * frequency_of(theta, i, num) / (2 * pi), d = (double)divisors[i];
        if (d <= 1) {
            shorter = x;
        } else if (d >= p.factor) {
            if (longer == 0) longer = x;
        } else {
            last_x = x;
            last_s = (1 / d - 1 / p.factor) / (1 - 1 / p.factor); // (x - low) / (high - low)
            if (!between++) {
                first_x = last_x;
                first_s = last_s;
            }
        }
    }
    if (between > 1) {
        double width = (first_x - last_x) / (first_s - last_s); // high - low
        p.low = last_x - last_s * width;
        p.high = p.low + width;
    } else if (between == 1) { // high is four times low in all published models
        p.low = first_x / (3 * first_s + 1);
        p.high = 4 * p.low;
    } else { // any two between the neighbours
        p.low = longer + (shorter - longer) / 3;
        p.high = shorter - (shorter - longer) / 3;
    }
    // Those of published models have few digits.
    double low = round(p.low * 1000) / 1000, high = round(p.high * 1000) / 1000;
    if (fabs(low - p.low) < 1e-4 * p.low) p.low = low;
    if (fabs(high - p.high) < 1e-4 * p.high) p.high = high;
    return p;
}

static enum status write_divisors(const struct gguf *gguf, const float *divisors, uint32_t num,
                                  double theta, struct json_out *out, struct err *err) {
    bool is_one = true;
    for (uint32_t i = 0; i < num; i++) is_one = is_one && divisors[i] == 1.0f;
    if (is_one) return OK;
    struct llama3 p = fit(divisors, num, theta);
    bool is_good = p.factor > 1 && p.factor < 1e6 && p.low > 0 && p.low < p.high && p.high < 1e6;
    for (uint32_t i = 0; i < num && is_good; i++) {
        double want = divisor_of(&p, frequency_of(theta, i, num));
        is_good = fabs(want - (double)divisors[i]) <= 1e-4 * want;
    }
    if (!is_good) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"rope_freqs.weight\" does not have the scaling of Llama 3, which is "
                       "the only one that is supported",
                       gguf_path(gguf));
    }
    json_out_rawf(out,
                  ", \"rope_type\": \"llama3\", \"factor\": %.17g, \"low_freq_factor\": %.17g, "
                  "\"high_freq_factor\": %.17g, \"original_max_position_embeddings\": %.17g",
                  p.factor, p.low, p.high, original);
    return OK;
}

static enum status write_freqs(const struct gguf *gguf, const struct gguf_tensor *tensor,
                               const struct gguf_model *model, double theta, struct json_out *out,
                               struct err *err) {
    uint32_t num = (uint32_t)gguf_model_wide(model) / 2;
    if (tensor->rank != 1 || tensor->shape[0] != num || tensor->type->dtype != DTYPE_F32) {
        return err_set(err, ERR_FORMAT, "%s: tensor \"rope_freqs.weight\" is not a list of %u F32",
                       gguf_path(gguf), num);
    }
    float *divisors = malloc(2 * num * sizeof *divisors); // the second half: bytes of the file
    if (!divisors) return err_nomem(err, "rotation");
    const void *bytes =
        byte_source_get(&tensor->source, 0, num * sizeof *divisors, divisors + num, err);
    if (bytes) memcpy(divisors, bytes, num * sizeof *divisors);
    enum status status = ERR_IO;
    if (bytes && model->global_head_dim) {
        status = gguf_write_proportional(gguf, divisors, num, out, err);
    } else if (bytes) {
        status = write_divisors(gguf, divisors, num, theta, out, err);
    }
    free(divisors);
    return status;
}

// mscale_all_dim; mscale is 1 beside it.
static enum status write_mscale(const struct gguf *gguf, const struct gguf_model *model,
                                struct json_out *out, struct err *err) {
    char key[GGUF_KEY_MAX];
    double mscale = 0;
    gguf_model_key(model, "rope.scaling.yarn_log_multiplier", key, sizeof key);
    enum status status = gguf_read_real(gguf, key, &mscale, err);
    if (status || mscale == 0) return status;
    if (model->has_latents) { // a tenth of both, which are equal
        json_out_raw(out, ", \"mscale\": ");
        json_out_float(out, (float)(mscale / 0.1));
        json_out_raw(out, ", \"mscale_all_dim\": ");
        json_out_float(out, (float)(mscale / 0.1));
        return OK;
    }
    json_out_rawf(out, ", \"mscale\": 1, \"mscale_all_dim\": %.17g", mscale);
    return OK;
}

// The factor of q and k that config.json has, as llama.cpp's converter writes it. 1 is also what
// llama.cpp writes where config.json has none; it then follows from the scaling's factor.
static enum status write_attention_factor(const struct gguf *gguf, const struct gguf_model *model,
                                          struct json_out *out, struct err *err) {
    char key[GGUF_KEY_MAX];
    double factor = 1;
    gguf_model_key(model, "rope.scaling.yarn_attn_factor", key, sizeof key);
    enum status status = gguf_read_real(gguf, key, &factor, err);
    if (status || factor == 1) return status;
    json_out_raw(out, ", \"attention_factor\": ");
    json_out_float(out, (float)factor);
    return OK;
}

// Ministral 3's scale of q by its position, which begins at the original length.
static enum status write_temperature(const struct gguf *gguf, const struct gguf_model *model,
                                     struct json_out *out, struct err *err) {
    char key[GGUF_KEY_MAX];
    double beta = 0;
    gguf_model_key(model, "attention.temperature_scale", key, sizeof key);
    enum status status = gguf_read_real(gguf, key, &beta, err);
    if (status || beta == 0 || strcmp(model->name, "mistral3") != 0) return status;
    json_out_raw(out, ", \"llama_4_scaling_beta\": ");
    json_out_float(out, (float)beta);
    return OK;
}

static enum status write_yarn(const struct gguf *gguf, const struct gguf_model *model,
                              double factor, struct json_out *out, struct err *err) {
    static const struct {
        const char *key, *name;
    } numbers[] = {
        {"rope.scaling.original_context_length", "original_max_position_embeddings"},
        {"rope.scaling.yarn_beta_fast", "beta_fast"},
        {"rope.scaling.yarn_beta_slow", "beta_slow"},
    };
    json_out_rawf(out, ", \"rope_type\": \"yarn\", \"factor\": %.17g", factor);
    // gpt-oss' ends of the ramp are no whole numbers. A file does not say that.
    if (strcmp(model->name, "gpt-oss") == 0) json_out_raw(out, ", \"truncate\": false");
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        char key[GGUF_KEY_MAX];
        double number = 0;
        gguf_model_key(model, numbers[i].key, key, sizeof key);
        enum status status = gguf_read_real(gguf, key, &number, err);
        if (status) return status;
        if (number > 0) json_out_rawf(out, ", \"%s\": %.17g", numbers[i].name, number);
    }
    enum status status = write_attention_factor(gguf, model, out, err);
    return status ? status : write_mscale(gguf, model, out, err);
}

// As in llama.cpp the type is linear unless the file says otherwise, and a factor of 0 or 1 scales
// nothing.
static enum status write_scaling(const struct gguf *gguf, const struct gguf_model *model,
                                 bool has_freqs, struct json_out *out, struct err *err) {
    char key[GGUF_KEY_MAX];
    struct gguf_string type = {"linear", 6};
    double factor = 0;
    gguf_model_key(model, "rope.scale_linear", key, sizeof key);
    enum status status = gguf_read_real(gguf, key, &factor, err);
    gguf_model_key(model, "rope.scaling.factor", key, sizeof key);
    if (!status) status = gguf_read_real(gguf, key, &factor, err);
    gguf_model_key(model, "rope.scaling.type", key, sizeof key);
    if (!status) status = gguf_read_string(gguf, key, &type, err);
    if (status) return status;
    if (model->has_longrope && gguf_string_is(type, "longrope")) return OK; // write_long
    bool is_linear = gguf_string_is(type, "linear"), is_yarn = gguf_string_is(type, "yarn");
    if (!is_linear && !is_yarn && !gguf_string_is(type, "none")) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"%s\" is \"%.*s\", which is not supported, want none, linear or yarn",
                       gguf_path(gguf), key, (int)type.len, type.text);
    }
    if (gguf_string_is(type, "none") || factor == 0 || factor == 1) return OK;
    if (has_freqs) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"%s\" beside \"rope_freqs.weight\" is not supported", gguf_path(gguf),
                       key);
    }
    if (is_yarn) return write_yarn(gguf, model, factor, out, err);
    json_out_rawf(out, ", \"rope_type\": \"linear\", \"factor\": %.17g", factor);
    return OK;
}

static enum status write_factors(const struct gguf *gguf, const struct gguf_tensor *tensor,
                                 const char *name, int64_t dims, struct json_out *out,
                                 struct err *err) {
    float buffer[2 * ROPE_PAIRS_MAX]; // the second half: bytes of the file
    uint64_t num = (uint64_t)dims / 2;
    if (num > ROPE_PAIRS_MAX || tensor->rank != 1 || tensor->shape[0] != num ||
        tensor->type->dtype != DTYPE_F32) {
        return err_set(err, ERR_FORMAT, "%s: tensor \"%.*s\" is not a list of %llu F32",
                       gguf_path(gguf), (int)tensor->name.len, tensor->name.text,
                       (unsigned long long)num);
    }
    const void *bytes =
        byte_source_get(&tensor->source, 0, num * sizeof *buffer, buffer + ROPE_PAIRS_MAX, err);
    if (!bytes) return ERR_IO;
    memcpy(buffer, bytes, num * sizeof *buffer);
    json_out_rawf(out, ", \"%s\": [", name);
    for (uint64_t i = 0; i < num; i++) {
        json_out_raw(out, i ? ", " : "");
        json_out_float(out, buffer[i]);
    }
    json_out_raw(out, "]");
    return OK;
}

// Phi-3's: two lists of divisors, for short and for long contexts, and a factor of q and k.
static enum status write_long(const struct gguf_files *files, const struct gguf_model *model,
                              int64_t dims, struct json_out *out, struct err *err) {
    const struct gguf *gguf = files->files[0];
    const struct gguf_tensor *shorts = gguf_files_find(files, "rope_factors_short.weight");
    const struct gguf_tensor *longs = gguf_files_find(files, "rope_factors_long.weight");
    if (!shorts && !longs) return OK;
    if (!model->has_longrope || !shorts || !longs) {
        return err_set(err, ERR_UNSUPPORTED, "%s: \"rope_factors_%s.weight\" is not supported%s",
                       gguf_path(gguf), shorts ? "short" : "long",
                       model->has_longrope ? " without the other list" : "");
    }
    char key[GGUF_KEY_MAX];
    double original_length = 0, factor = 0;
    gguf_model_key(model, "rope.scaling.original_context_length", key, sizeof key);
    enum status status = gguf_read_real(gguf, key, &original_length, err);
    if (!status && original_length <= 0) status = gguf_missing(gguf, key, err);
    gguf_model_key(model, "rope.scaling.attn_factor", key, sizeof key);
    if (!status) status = gguf_read_real(gguf, key, &factor, err);
    if (status) return status;
    json_out_rawf(out, ", \"rope_type\": \"longrope\", \"original_max_position_embeddings\": %.17g",
                  original_length);
    if (factor > 0) json_out_rawf(out, ", \"attention_factor\": %.17g", factor);
    status = write_factors(gguf, shorts, "short_factor", dims, out, err);
    return status ? status : write_factors(gguf, longs, "long_factor", dims, out, err);
}

// Of layers with a window, which have no scaling.
static enum status write_local(const struct gguf *gguf, const struct gguf_model *model,
                               double theta, struct json_out *out, struct err *err) {
    char key[GGUF_KEY_MAX];
    double local = strncmp(model->name, "gemma", strlen("gemma")) == 0 ? 10000 : theta;
    gguf_model_key(model, "rope.freq_base_swa", key, sizeof key);
    enum status status = gguf_read_real(gguf, key, &local, err);
    json_out_raw(out, ", \"sliding_attention\": {\"rope_theta\": ");
    json_out_float(out, (float)local);
    json_out_raw(out, "}");
    return status;
}

// The section of all layers, or of those without a window.
static enum status write_section(const struct gguf_files *files, const struct gguf_model *model,
                                 double theta, int64_t dims, struct json_out *out,
                                 struct err *err) {
    const struct gguf_tensor *freqs = gguf_files_find(files, "rope_freqs.weight");
    if (model->global_head_dim && !freqs) { // it alone says which part of a head is rotated
        return err_set(err, ERR_FORMAT, "%s has no tensor \"rope_freqs.weight\"",
                       gguf_path(files->files[0]));
    }
    json_out_raw(out, "{\"rope_theta\": ");
    json_out_float(out, (float)theta);
    if (!model->global_head_dim && (dims != model->head_dim || model->is_partial)) {
        // Else the class' share would hold.
        json_out_rawf(out, ", \"partial_rotary_factor\": %.17g",
                      (double)dims / (double)model->head_dim);
    }
    enum status status = write_scaling(files->files[0], model, freqs != NULL, out, err);
    if (!status && freqs) status = write_freqs(files->files[0], freqs, model, theta, out, err);
    if (!status) status = write_long(files, model, dims, out, err);
    if (!status) status = write_temperature(files->files[0], model, out, err);
    json_out_raw(out, "}");
    return status;
}

enum status gguf_write_rope(const struct gguf_files *files, const struct gguf_model *model,
                            struct json_out *out, struct err *err) {
    const struct gguf *gguf = files->files[0];
    char key[GGUF_KEY_MAX];
    double theta = 10000;
    int64_t width = gguf_model_wide(model), dims = width;
    int64_t local_dims = model->head_dim;
    enum status status = check_keys(gguf, model, err);
    gguf_model_key(model, "rope.freq_base", key, sizeof key);
    if (!status) status = gguf_read_real(gguf, key, &theta, err);
    gguf_model_key(model, "rope.dimension_count", key, sizeof key);
    if (!status) status = gguf_read_int(gguf, key, 0, INT32_MAX, &dims, err);
    gguf_model_key(model, "rope.dimension_count_swa", key, sizeof key);
    if (!status) status = gguf_read_int(gguf, key, 0, INT32_MAX, &local_dims, err);
    if (!status && local_dims != model->head_dim) {
        status = err_set(err, ERR_UNSUPPORTED, "%s: \"%s\" is %lld, want all %lld", gguf_path(gguf),
                         key, (long long)local_dims, (long long)model->head_dim);
    }
    if (status) return status;
    bool has_parts = model->has_longrope || model->is_partial;
    bool may_be_partial = has_parts && dims > 0 && dims < width && dims % 2 == 0;
    gguf_model_key(model, "rope.dimension_count", key, sizeof key);
    if (dims != width && !may_be_partial) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"%s\" is %lld of %lld dimensions, only all are supported",
                       gguf_path(gguf), key, (long long)dims, (long long)width);
    }
    json_out_raw(out, ", \"rope_parameters\": ");
    if (!model->window_pattern || model->has_one_rope)
        return write_section(files, model, theta, dims, out, err);
    json_out_raw(out, "{\"full_attention\": ");
    status = write_section(files, model, theta, dims, out, err);
    if (!status) status = write_local(gguf, model, theta, out, err);
    json_out_raw(out, "}");
    return status;
}
