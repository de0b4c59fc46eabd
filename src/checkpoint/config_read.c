/* Helpers shared by the readers of config.json, its sections and generation_config.json. */
#include "checkpoint/config_read.h"

#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "base/log.h"
#include "checkpoint/model_config.h"

enum status config_read_u32(const json_t *object, const char *key, uint32_t min, uint32_t max,
                            uint32_t *out, const char *what, struct err *err) {
    int64_t value = *out;
    enum status status = jread_int(object, key, min, max, &value, what, err);
    if (!status) *out = (uint32_t)value;
    return status;
}

enum status config_require_u32(const json_t *object, const char *key, uint32_t min, uint32_t max,
                               uint32_t *out, const char *what, struct err *err) {
    if (!jread_get(object, key)) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is missing, want an integer from %u to %u",
                       what, key, min, max);
    }
    return config_read_u32(object, key, min, max, out, what, err);
}

enum status config_read_double(const json_t *object, const char *key, double min, double max,
                               double *out, const char *what, struct err *err) {
    double value = *out;
    if (!jread_get(object, key)) return OK;
    enum status status = jread_number(object, key, &value, what, err);
    if (status) return status;
    if (value < min || value > max) {
        bool is_open = min == NVLLM_ABOVE_ZERO;
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is %.9g, want %s%.9g to %.9g", what, key, value,
                       is_open ? "above " : "", is_open ? 0 : min, max);
    }
    *out = value;
    return OK;
}

enum status config_read_bool(const json_t *object, const char *key, bool *out, const char *what,
                             struct err *err) {
    if (json_is_null(json_object_get(object, key))) *out = false;
    return jread_bool(object, key, out, what, err);
}

// `listed`: the value is one of a list.
static enum status add_eos(struct model_config *config, const json_t *value, bool listed,
                           const char *what, struct err *err) {
    const char *verb = listed ? "has" : "is";
    if (!json_is_integer(value)) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"eos_token_id\" %s %s, want an integer or a list of integers", what,
                       verb, jread_type_name(value));
    }
    json_int_t id = json_integer_value(value);
    json_int_t limit = config->vocab_size ? (json_int_t)config->vocab_size : INT32_MAX;
    if (id < 0) {
        return err_set(err, ERR_FORMAT, "%s: \"eos_token_id\" %s %lld, want 0 or more", what, verb,
                       (long long)id);
    }
    // Small models often keep the id of the vocabulary that their configuration class began with.
    if (id >= limit) {
        log_warning("%s: \"eos_token_id\" %s %lld, which the vocabulary of %lld tokens lacks; it "
                    "ends no output",
                    what, verb, (long long)id, (long long)limit);
        return OK;
    }
    for (uint32_t i = 0; i < config->num_eos_token_ids; i++) {
        if (config->eos_token_ids[i] == id) return OK;
    }
    size_t count = config->num_eos_token_ids + 1u;
    int32_t *grown = realloc(config->eos_token_ids, count * sizeof *grown);
    if (!grown) return err_nomem(err, "EOS ids");
    grown[count - 1] = (int32_t)id;
    config->eos_token_ids = grown;
    config->num_eos_token_ids = (uint32_t)count;
    return OK;
}

enum status config_clear_layers(const json_t *object, const char *key, uint32_t num_layers,
                                bool *flags, const char *what, struct err *err) {
    const json_t *list = jread_get(object, key);
    if (list && !json_is_array(list)) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is %s, want a list of layers' numbers", what,
                       key, jread_type_name(list));
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        json_int_t index = json_integer_value(value);
        if (!json_is_integer(value) || index < 0 || index >= num_layers) {
            return err_set(err, ERR_FORMAT, "%s: \"%s\" has no layer's number at %zu, want 0 to %u",
                           what, key, i, num_layers - 1);
        }
        flags[index] = false;
    }
    return OK;
}

enum status config_read_eos(const json_t *object, struct model_config *config, const char *what,
                            struct err *err) {
    enum { EOS_IDS_MAX = 1024 }; // in one list, because adding ids takes quadratic time
    const json_t *value = jread_get(object, "eos_token_id");
    if (!value) return OK;
    if (!json_is_array(value)) return add_eos(config, value, false, what, err);
    if (json_array_size(value) > EOS_IDS_MAX) {
        return err_set(err, ERR_FORMAT, "%s: \"eos_token_id\" has %zu ids, want at most %d", what,
                       json_array_size(value), EOS_IDS_MAX);
    }
    enum status status = OK;
    for (size_t i = 0; i < json_array_size(value) && !status; i++) {
        status = add_eos(config, json_array_get(value, i), true, what, err);
    }
    return status;
}

// Python writes an infinite number as Infinity, which is no JSON. In the copy it is a string of as
// many bytes. NULL: out of memory.
static char *quote_infinity(const char *text, size_t len) {
    static const char word[] = "Infinity", quoted[] = "\"" CONFIG_INFINITY "\"   ";
    enum { WORD_LEN = sizeof word - 1 };
    _Static_assert(sizeof quoted == sizeof word, "it takes the word's place");
    char *copy = malloc(len + 1);
    bool is_quoted = false;
    if (!copy) return NULL;
    memcpy(copy, text, len);
    for (size_t i = 0; i < len; i++) {
        if (copy[i] == '"') is_quoted = !is_quoted;
        if (is_quoted && copy[i] == '\\') i++;
        if (is_quoted || len - i < WORD_LEN || memcmp(copy + i, word, WORD_LEN) != 0) continue;
        memcpy(copy + i, quoted, WORD_LEN);
        i += WORD_LEN - 1;
    }
    return copy;
}

enum status config_read_object(json_t **out, const char *text, size_t len, const char *what,
                               struct err *err) {
    char *copy = quote_infinity(text, len);
    *out = NULL;
    if (!copy) return err_nomem(err, what);
    enum status status = jread_text(out, copy, len, what, err);
    free(copy);
    if (status || json_is_object(*out)) return status;
    status = err_set(err, ERR_FORMAT, "%s is %s, want an object", what, jread_type_name(*out));
    json_decref(*out);
    *out = NULL;
    return status;
}
