/* In both forms the section has the same keys: a type, the numbers that the type needs, perhaps a
 * theta. An unknown key is refused, because it can only change the rotation. */
#include "checkpoint/classes/rope_config.h"

#include <stdio.h>
#include <string.h>

#include "base/json/jread.h"
#include "base/os/file.h"
#include "checkpoint/config_read.h"

static const double factor_max = 1e6;
static const double position_max = 1 << 30;

// The section being read.
struct section {
    json_t *object;
    const json_t *root; // config.json's object
    char what[FILE_PATH_MAX + 32]; // "<file>: <key>"
    uint32_t max_position_embeddings;
};

static enum status check_keys(const struct section *section, struct err *err) {
    static const char *const known[] = {
        "rope_type",
        "type",
        "rope_theta",
        "factor",
        "original_max_position_embeddings",
        "low_freq_factor",
        "high_freq_factor",
        "beta_fast",
        "beta_slow",
        "attention_factor",
        "mscale",
        "mscale_all_dim",
        "truncate",
        "partial_rotary_factor",
        "short_factor",
        "long_factor",
        "llama_4_scaling_beta",
        "alpha",
        "max_position_embeddings", // repeats the key of config.json itself
        "finetuned", // only a note about how the checkpoint was made
    };
    const char *key;
    json_t *value;
    json_object_foreach(section->object, key, value) {
        bool found = json_is_null(value);
        for (size_t i = 0; i < ARRAY_LEN(known) && !found; i++) found = !strcmp(key, known[i]);
        if (found) continue;
        return err_set(err, ERR_UNSUPPORTED, "%s: \"%.100s\" is not supported", section->what, key);
    }
    return OK;
}

static enum status read_type(const struct section *section, enum rope_type *type, struct err *err) {
    static const char *const names[] = {
        [ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3",
        [ROPE_YARN] = "yarn",       [ROPE_LONG] = "longrope", [ROPE_PROPORTIONAL] = "proportional"};
    const char *name = NULL;
    const char *old_name = NULL;
    bool has_alpha = jread_get(section->object, "alpha") != NULL;
    enum status status = jread_string(section->object, "rope_type", &name, section->what, err);
    if (!status) status = jread_string(section->object, "type", &old_name, section->what, err);
    if (status) return status;
    if (name && old_name && strcmp(name, old_name) != 0) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"rope_type\" is \"%.40s\" but \"type\" is \"%.40s\"; want one type",
                       section->what, name, old_name);
    }
    if (!name) name = old_name;
    // Phi-3's name of it, before transformers had longrope.
    bool has_old_name = name && (strcmp(name, "su") == 0 || strcmp(name, "yarn") == 0);
    if (has_old_name && jread_get(section->object, "short_factor")) name = names[ROPE_LONG];
    if (!name && jread_get(section->object, "factor")) {
        return err_set(
            err, ERR_FORMAT,
            "%s: \"factor\" is given but \"rope_type\" is missing, want default, linear, dynamic, "
            "llama3, yarn, longrope or proportional",
            section->what);
    }
    if (!name) name = names[ROPE_DEFAULT];
    if (has_alpha) {
        // Hunyuan's "dynamic" only changes theta, by alpha.
        if (strcmp(name, "dynamic") == 0) {
            *type = ROPE_DEFAULT;
            return OK;
        }
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"alpha\" is given and \"rope_type\" is \"%.40s\"; alpha is only "
                       "supported with dynamic",
                       section->what, name);
    }
    // It differs only behind max_position_embeddings, where no sequence goes.
    if (strcmp(name, "dynamic") == 0) name = names[ROPE_DEFAULT];
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *type = (enum rope_type)i;
        return OK;
    }
    return err_set(
        err, ERR_UNSUPPORTED,
        "%s: \"rope_type\" is \"%.40s\", only default, linear, dynamic, llama3, yarn, longrope and "
        "proportional are supported",
        section->what, name);
}

static enum status require(const struct section *section, const char *key, double min, double max,
                           double *out, struct err *err) {
    if (!jread_get(section->object, key)) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is missing, want a number from %.9g to %.9g",
                       section->what, key, min, max);
    }
    return config_read_double(section->object, key, min, max, out, section->what, err);
}

static enum status read_original(const struct section *section, struct rope_config *rope,
                                 struct err *err) {
    static const char key[] = "original_max_position_embeddings";
    double *out = &rope->original_max_position_embeddings;
    *out = section->max_position_embeddings;
    const json_t *object = jread_get(section->object, key) ? section->object : section->root;
    return config_read_double(object, key, 1, position_max, out, section->what, err);
}

static enum status read_llama3(const struct section *section, struct rope_config *rope,
                               struct err *err) {
    enum status status = require(section, "factor", 1, factor_max, &rope->factor, err);
    if (!status) {
        status = require(section, "low_freq_factor", 1e-6, factor_max, &rope->low_freq_factor, err);
    }
    if (!status) {
        status =
            require(section, "high_freq_factor", 1e-6, factor_max, &rope->high_freq_factor, err);
    }
    if (!status) status = read_original(section, rope, err);
    if (status || rope->high_freq_factor >= rope->low_freq_factor) return status;
    return err_set(err, ERR_FORMAT,
                   "%s: \"high_freq_factor\" is %.9g, want at least \"low_freq_factor\", %.9g",
                   section->what, rope->high_freq_factor, rope->low_freq_factor);
}

static enum status read_yarn_factor(const struct section *section, struct rope_config *rope,
                                    struct err *err) {
    double ratio = section->max_position_embeddings / rope->original_max_position_embeddings;
    if (jread_get(section->object, "factor") || ratio <= 1) {
        return require(section, "factor", 1, factor_max, &rope->factor, err);
    }
    rope->factor = ratio; // as in transformers, where only the lengths are given
    return OK;
}

static enum status read_yarn(const struct section *section, struct rope_config *rope,
                             struct err *err) {
    const json_t *object = section->object;
    const char *what = section->what;
    enum status status = read_original(section, rope, err);
    if (!status) status = read_yarn_factor(section, rope, err);
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    rope->truncate = true;
    const struct {
        const char *key;
        double *out;
    } numbers[] = {{"beta_fast", &rope->beta_fast},
                   {"beta_slow", &rope->beta_slow},
                   {"attention_factor", &rope->attention_factor},
                   {"mscale", &rope->mscale},
                   {"mscale_all_dim", &rope->mscale_all_dim}};
    for (size_t i = 0; i < ARRAY_LEN(numbers) && !status; i++) {
        double min = i < 3 ? 1e-6 : 0; // an mscale of 0 means that there is none
        status =
            config_read_double(object, numbers[i].key, min, factor_max, numbers[i].out, what, err);
    }
    if (!status) status = config_read_bool(object, "truncate", &rope->truncate, what, err);
    if (status || rope->beta_fast >= rope->beta_slow) return status;
    return err_set(err, ERR_FORMAT, "%s: \"beta_fast\" is %.9g, want at least \"beta_slow\", %.9g",
                   what, rope->beta_fast, rope->beta_slow);
}

static enum status read_factors(const struct section *section, const char *key, uint32_t *count,
                                float *out, struct err *err) {
    const json_t *list = jread_get(section->object, key);
    size_t size = json_array_size(list);
    if (!size || size > ROPE_FACTORS_MAX) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is %s, want a list of 1 to %d numbers",
                       section->what, key, jread_type_name(list), ROPE_FACTORS_MAX);
    }
    for (size_t i = 0; i < size; i++) {
        double value = json_number_value(json_array_get(list, i));
        if (!(value >= 1e-6 && value <= factor_max)) { // also where it is no number
            return err_set(err, ERR_FORMAT, "%s: \"%s\" has %.9g at %zu, want 1e-06 to %.9g",
                           section->what, key, value, i, factor_max);
        }
        out[i] = (float)value;
    }
    *count = (uint32_t)size;
    return OK;
}

static enum status read_long(const struct section *section, struct rope_config *rope,
                             struct err *err) {
    uint32_t num_long = 0;
    enum status status = read_original(section, rope, err);
    if (!status) {
        status =
            read_factors(section, "short_factor", &rope->num_factors, rope->short_factors, err);
    }
    if (!status) status = read_factors(section, "long_factor", &num_long, rope->long_factors, err);
    if (status) return status;
    double ratio = section->max_position_embeddings / rope->original_max_position_embeddings;
    rope->factor = ratio < 1 ? 1 : ratio;
    status = config_read_double(section->object, "factor", 1, factor_max, &rope->factor,
                                section->what, err);
    if (!status) {
        status = config_read_double(section->object, "attention_factor", 1e-6, factor_max,
                                    &rope->attention_factor, section->what, err);
    }
    if (status || num_long == rope->num_factors) return status;
    return err_set(err, ERR_FORMAT, "%s: \"short_factor\" has %u numbers and \"long_factor\" %u",
                   section->what, rope->num_factors, num_long);
}

// Llama 4's scaling of q by the position, in Ministral 3's form.
static enum status read_query_scale(const struct section *section, struct rope_config *rope,
                                    struct err *err) {
    const char *what = section->what;
    enum status status = config_read_double(section->object, "llama_4_scaling_beta", 0, factor_max,
                                            &rope->query_beta, what, err);
    if (status || rope->query_beta == 0) return status;
    return require(section, "original_max_position_embeddings", 1, position_max,
                   &rope->query_length, err);
}

// `theta` is the value of the keys read before; 0: none had one.
static enum status read_section(struct section *section, double theta, struct rope_config *rope,
                                struct err *err) {
    *rope = (struct rope_config){.theta = theta, .partial = 1};
    enum status status = check_keys(section, err);
    if (!status) {
        status = config_read_double(section->root, "partial_rotary_factor", 1e-3, 1, &rope->partial,
                                    section->what, err);
    }
    if (!status) {
        status = config_read_double(section->object, "partial_rotary_factor", 1e-3, 1,
                                    &rope->partial, section->what, err);
    }
    if (!status) status = read_type(section, &rope->type, err);
    if (!status) status = read_query_scale(section, rope, err);
    if (!status) {
        status = config_read_double(section->object, "alpha", 1, factor_max, &rope->alpha,
                                    section->what, err);
    }
    if (!status) {
        status = config_read_double(section->object, "rope_theta", 1, 1e12, &rope->theta,
                                    section->what, err);
    }
    if (status) return status;
    if (theta != 0 && rope->theta != theta) {
        return err_set(err, ERR_FORMAT, "%s: \"rope_theta\" is %.9g here and %.9g elsewhere",
                       section->what, rope->theta, theta);
    }
    switch (rope->type) {
    case ROPE_DEFAULT:
        return OK;
    case ROPE_LINEAR:
        return require(section, "factor", 1, factor_max, &rope->factor, err);
    case ROPE_LLAMA3:
        return read_llama3(section, rope, err);
    case ROPE_YARN:
        return read_yarn(section, rope, err);
    case ROPE_LONG:
        return read_long(section, rope, err);
    case ROPE_PROPORTIONAL:
        rope->proportion = rope->partial;
        rope->partial = rope->factor = 1;
        return config_read_double(section->object, "factor", 1, factor_max, &rope->factor,
                                  section->what, err);
    }
    return OK;
}

// Where sections are in config.json.
struct place {
    const json_t *root; // config.json's object
    const char *layer_type; // as in rope_config_read
    uint32_t max_position_embeddings;
    const char *what; // the file, for errors
};

// Reads the section under `key`. *found tells whether there is one.
static enum status read_key(const struct place *place, const char *key, double theta,
                            struct rope_config *rope, bool *found, struct err *err) {
    struct section section = {.object = jread_get(place->root, key),
                              .root = place->root,
                              .max_position_embeddings = place->max_position_embeddings};
    *found = section.object != NULL;
    if (!*found) return OK;
    json_t *own = place->layer_type ? jread_get(section.object, place->layer_type) : NULL;
    if (json_is_object(own)) section.object = own;
    if (!json_is_object(section.object)) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is %s, want an object or null", place->what,
                       key, jread_type_name(section.object));
    }
    snprintf(section.what, sizeof section.what, "%s: %s", place->what, key);
    return read_section(&section, theta, rope, err);
}

static bool factors_equal(const float *a, const float *b, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (a[i] != b[i]) return false;
    }
    return true;
}

static bool rope_equal(const struct rope_config *a, const struct rope_config *b) {
    return a->type == b->type && a->theta == b->theta && a->factor == b->factor &&
           a->original_max_position_embeddings == b->original_max_position_embeddings &&
           a->low_freq_factor == b->low_freq_factor && a->high_freq_factor == b->high_freq_factor &&
           a->beta_fast == b->beta_fast && a->beta_slow == b->beta_slow &&
           a->attention_factor == b->attention_factor && a->mscale == b->mscale &&
           a->mscale_all_dim == b->mscale_all_dim && a->truncate == b->truncate &&
           a->alpha == b->alpha && a->query_beta == b->query_beta &&
           a->query_length == b->query_length && a->partial == b->partial &&
           a->proportion == b->proportion && a->num_factors == b->num_factors &&
           factors_equal(a->short_factors, b->short_factors, a->num_factors) &&
           factors_equal(a->long_factors, b->long_factors, a->num_factors);
}

enum status rope_config_read(struct rope_config *rope, const json_t *root, const char *layer_type,
                             uint32_t max_position_embeddings, double theta_default,
                             const char *what, struct err *err) {
    const struct place place = {root, layer_type, max_position_embeddings, what};
    double theta = 0;
    struct rope_config scaled = {0};
    bool has_parameters = false;
    bool has_scaling = false;
    enum status status = config_read_double(root, "rope_theta", 1, 1e12, &theta, what, err);
    if (!status) {
        status = read_key(&place, "rope_parameters", theta, rope, &has_parameters, err);
    }
    if (!status) {
        double known = has_parameters ? rope->theta : theta;
        status = read_key(&place, "rope_scaling", known, &scaled, &has_scaling, err);
    }
    if (status) return status;
    if (has_parameters && has_scaling && !rope_equal(rope, &scaled)) {
        return err_set(err, ERR_FORMAT, "%s: \"rope_parameters\" and \"rope_scaling\" disagree",
                       what);
    }
    if (has_scaling) *rope = scaled;
    if (!has_parameters && !has_scaling) {
        *rope = (struct rope_config){.theta = theta, .partial = 1};
        status =
            config_read_double(root, "partial_rotary_factor", 1e-3, 1, &rope->partial, what, err);
    }
    if (rope->theta == 0) rope->theta = theta_default;
    return status;
}

enum status rope_config_read_local(struct rope_config *local, const json_t *root,
                                   uint32_t max_position_embeddings, double theta_default,
                                   const char *what, struct err *err) {
    bool found = false;
    const json_t *all = jread_get(root, "rope_parameters");
    if (json_is_object(jread_get(all, "sliding_attention"))) {
        const struct place place = {root, "sliding_attention", max_position_embeddings, what};
        enum status status = read_key(&place, "rope_parameters", 0, local, &found, err);
        if (!status && local->theta == 0) local->theta = theta_default;
        return status;
    }
    *local = (struct rope_config){.theta = theta_default, .partial = 1};
    return config_read_double(root, "rope_local_base_freq", 1, 1e12, &local->theta, what, err);
}

enum status rope_config_read_thetas(double **out, const json_t *root, uint32_t num_layers,
                                    const char *what, struct err *err) {
    static const char key[] = "layer_rope_theta";
    const json_t *list = jread_get(root, key);
    if (!list) return OK;
    if (!json_is_array(list) || json_array_size(list) != num_layers) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"%s\" is %s of %zu, want a list of numbers for each of the %u layers",
                       what, key, jread_type_name(list), json_array_size(list), num_layers);
    }
    *out = calloc(num_layers, sizeof **out);
    if (!*out) return err_nomem(err, key);
    for (uint32_t i = 0; i < num_layers; i++) {
        const json_t *item = json_array_get(list, i);
        double theta = json_number_value(item);
        if (!json_is_number(item) || !(theta == 0 || (theta >= 1 && theta <= 1e12))) {
            return err_set(err, ERR_FORMAT, "%s: \"%s\" has %s at %u, want 0, or 1 to 1e12", what,
                           key, json_is_number(item) ? "another number" : jread_type_name(item), i);
        }
        (*out)[i] = theta;
    }
    return OK;
}
