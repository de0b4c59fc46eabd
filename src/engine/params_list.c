/* Lists are parsed completely into one new allocation each before the old one is freed, so that a
 * refused value leaves the parameters as they were. */
#include "engine/params_list.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jread.h"
#include "engine/params.h"

// What params->owned points to: one allocation per list, NULL where the list is not ours.
struct params_owned {
    int32_t *stop_token_ids; // [num_stop_token_ids]
    char **stop; // [num_stop], the strings' bytes behind the pointers
    struct nvllm_logit_bias *logit_bias; // [num_logit_bias]
};

void params_excerpt(char out[PARAMS_EXCERPT_MAX], const char *text) {
    size_t len = strnlen(text, PARAMS_EXCERPT_MAX);
    if (len < PARAMS_EXCERPT_MAX) {
        memcpy(out, text, len + 1);
        return;
    }
    len = PARAMS_EXCERPT_MAX - 4;
    while (len > 0 && ((unsigned char)text[len] & 0xc0u) == 0x80u) len--;
    memcpy(out, text, len);
    memcpy(out + len, "...", 4);
}

static const char *skip_space(const char *text) {
    return text + strspn(text, " \t\r\n");
}

bool params_is_null(const char *value) {
    value = skip_space(value);
    return strncmp(value, "null", 4) == 0 && *skip_space(value + 4) == '\0';
}

void params_list_free_owned(void *memory) {
    struct params_owned *owned = memory;
    if (!owned) return;
    free(owned->stop_token_ids);
    free(owned->stop);
    free(owned->logit_bias);
    free(owned);
}

static enum status wrong_value(const char *name, const char *value, const char *want,
                               struct err *err) {
    char excerpt[PARAMS_EXCERPT_MAX];
    params_excerpt(excerpt, value);
    return err_set(err, ERR_INVALID, "%s is %s, want %s", name, excerpt, want);
}

static enum status too_long(const char *name, size_t len, int max, struct err *err) {
    return err_set(err, ERR_INVALID, "%s has %zu entries, want at most %d", name, len, max);
}

static enum status wrong_entry(const char *name, size_t index, const json_t *entry,
                               const char *want, struct err *err) {
    return err_set(err, ERR_INVALID, "entry %zu of %s is %s, want %s", index, name,
                   jread_type_name(entry), want);
}

// Entry `index` of stop; `text` [len] may hold NUL.
static enum status check_stop_string(size_t index, const char *text, size_t len, struct err *err) {
    if (len == 0) return err_set(err, ERR_INVALID, "entry %zu of stop is empty", index);
    if (len > PARAMS_STOP_BYTES_MAX) {
        return err_set(err, ERR_INVALID, "entry %zu of stop is longer than %d bytes", index,
                       PARAMS_STOP_BYTES_MAX);
    }
    if (!memchr(text, '\0', len)) return OK;
    return err_set(err, ERR_INVALID, "entry %zu of stop has a NUL character, which none may have",
                   index);
}

// The pointers and the bytes of all strings in one allocation; `entries` is a list of strings.
static enum status copy_strings(char ***out, const json_t *entries, struct err *err) {
    size_t count = json_array_size(entries);
    size_t bytes = count * sizeof(char *);
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(entries, i);
        if (!json_is_string(entry)) return wrong_entry("stop", i, entry, "a string", err);
        size_t len = json_string_length(entry);
        enum status status = check_stop_string(i, json_string_value(entry), len, err);
        if (status) return status;
        bytes += len + 1;
    }
    char **strings = malloc(bytes);
    if (!strings) return err_nomem(err, "stop");
    char *at = (char *)(strings + count);
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(entries, i);
        strings[i] = at;
        memcpy(at, json_string_value(entry), json_string_length(entry) + 1);
        at += json_string_length(entry) + 1;
    }
    *out = strings;
    return OK;
}

// A whole value that is not JSON is the one string itself, unless it only looks like broken JSON.
static enum status copy_bare_string(char ***out, size_t *count, const char *value,
                                    struct err *err) {
    const char *want = "a string or a list of strings";
    if (*value && strchr("[{\"", *skip_space(value))) {
        return wrong_value("stop", value, want, err);
    }
    size_t len = strlen(value);
    enum status status = check_stop_string(0, value, len, err);
    if (status) return status;
    char **strings = malloc(sizeof *strings + len + 1);
    if (!strings) return err_nomem(err, "stop");
    strings[0] = (char *)(strings + 1);
    memcpy(strings[0], value, len + 1);
    *out = strings;
    *count = 1;
    return OK;
}

static enum status parse_strings(char ***out, size_t *count, const char *value, struct err *err) {
    json_t *json = NULL;
    enum status status = jread_request(&json, value, strlen(value), "stop", err);
    if (status == ERR_NOMEM) return status;
    if (status) return copy_bare_string(out, count, value, err);
    if (json_is_string(json)) {
        json_t *list = json_array();
        if (json_array_append_new(list, json)) { // lets go of json, also when it fails
            json_decref(list);
            return err_nomem(err, "stop");
        }
        json = list;
    }
    if (!json_is_array(json)) {
        status = wrong_value("stop", value, "a string (in quotes) or a list of strings", err);
    } else if (json_array_size(json) > PARAMS_STOP_MAX) {
        status = too_long("stop", json_array_size(json), PARAMS_STOP_MAX, err);
    } else {
        *count = json_array_size(json);
        status = *count ? copy_strings(out, json, err) : OK;
    }
    json_decref(json);
    return status;
}

static enum status copy_ids(int32_t **out, const json_t *entries, struct err *err) {
    size_t count = json_array_size(entries);
    int32_t *ids = malloc(count * sizeof *ids);
    if (!ids) return err_nomem(err, "stop_token_ids");
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(entries, i);
        json_int_t id = json_integer_value(entry);
        enum status status = OK;
        if (!json_is_integer(entry)) {
            status = wrong_entry("stop_token_ids", i, entry, "a token id", err);
        } else if (id < 0 || id > INT32_MAX) {
            status = err_set(err, ERR_INVALID,
                             "entry %zu of stop_token_ids is %lld, want a token id from 0 to %d", i,
                             (long long)id, INT32_MAX);
        }
        if (status) {
            free(ids);
            return status;
        }
        ids[i] = (int32_t)id;
    }
    *out = ids;
    return OK;
}

static enum status parse_ids(int32_t **out, size_t *count, const char *value, struct err *err) {
    json_t *json = NULL;
    enum status status = jread_text(&json, value, strlen(value), "stop_token_ids", err);
    if (status == ERR_NOMEM) return status;
    if (!json_is_array(json)) {
        status = wrong_value("stop_token_ids", value, "a list of token ids", err);
    } else if (json_array_size(json) > PARAMS_STOP_TOKEN_IDS_MAX) {
        status = too_long("stop_token_ids", json_array_size(json), PARAMS_STOP_TOKEN_IDS_MAX, err);
    } else {
        *count = json_array_size(json);
        status = *count ? copy_ids(out, json, err) : OK;
    }
    json_decref(json);
    return status;
}

// One "id": bias pair. JSON has no infinity, so the string "-inf" stands for the ban.
static enum status parse_bias(struct nvllm_logit_bias *out, const char *key, const json_t *bias,
                              const struct nvllm_param *param, struct err *err) {
    char excerpt[PARAMS_EXCERPT_MAX];
    params_excerpt(excerpt, key);
    size_t digits = strspn(key, "0123456789");
    long long id = digits && digits <= 10 && !key[digits] ? strtoll(key, NULL, 10) : -1;
    if (id < 0 || id > INT32_MAX || (key[0] == '0' && digits > 1)) {
        return err_set(err, ERR_INVALID, "logit_bias has the key \"%s\", want a token id", excerpt);
    }
    out->token_id = (int32_t)id;
    if (json_is_string(bias) && strcmp(json_string_value(bias), "-inf") == 0) {
        out->bias = -INFINITY;
        return OK;
    }
    double number = json_number_value(bias);
    if (!json_is_number(bias)) {
        return err_set(err, ERR_INVALID, "logit_bias of token %s is %s, want a number or \"-inf\"",
                       excerpt, jread_type_name(bias));
    }
    if (!(number >= param->min && number <= param->max)) {
        return err_set(err, ERR_INVALID,
                       "logit_bias of token %s is %.10g, want a number from %.10g to %.10g or "
                       "\"-inf\"",
                       excerpt, number, param->min, param->max);
    }
    out->bias = (float)number;
    return OK;
}

static enum status copy_biases(struct nvllm_logit_bias **out, json_t *map,
                               const struct nvllm_param *param, struct err *err) {
    struct nvllm_logit_bias *biases = malloc(json_object_size(map) * sizeof *biases);
    if (!biases) return err_nomem(err, "logit_bias");
    size_t i = 0;
    const char *key;
    json_t *bias;
    json_object_foreach(map, key, bias) {
        enum status status = parse_bias(&biases[i], key, bias, param, err);
        if (status) {
            free(biases);
            return status;
        }
        i++;
    }
    *out = biases;
    return OK;
}

static enum status parse_biases(struct nvllm_logit_bias **out, size_t *count, const char *value,
                                const struct nvllm_param *param, struct err *err) {
    json_t *json = NULL;
    enum status status = jread_text(&json, value, strlen(value), "logit_bias", err);
    if (status == ERR_NOMEM) return status;
    if (!json_is_object(json)) {
        status = wrong_value("logit_bias", value, "a map of token ids to biases", err);
    } else if (json_object_size(json) > PARAMS_LOGIT_BIAS_MAX) {
        status = too_long("logit_bias", json_object_size(json), PARAMS_LOGIT_BIAS_MAX, err);
    } else {
        *count = json_object_size(json);
        status = *count ? copy_biases(out, json, param, err) : OK;
    }
    json_decref(json);
    return status;
}

enum status params_list_set(struct nvllm_sampling_params *params, const struct nvllm_param *param,
                            const char *value, struct err *err) {
    bool unset = params_is_null(value);
    int32_t *ids = NULL;
    char **strings = NULL;
    struct nvllm_logit_bias *biases = NULL;
    size_t count = 0;
    struct params_owned *owned = params->owned ? params->owned : calloc(1, sizeof *owned);
    if (!owned) return err_nomem(err, param->name);
    enum status status = OK;
    if (param->type == NVLLM_PARAM_IDS) {
        if (!unset) status = parse_ids(&ids, &count, value, err);
        if (status) goto fail;
        free(owned->stop_token_ids);
        params->stop_token_ids = owned->stop_token_ids = ids;
        params->num_stop_token_ids = count;
    } else if (param->type == NVLLM_PARAM_STRINGS) {
        if (!unset) status = parse_strings(&strings, &count, value, err);
        if (status) goto fail;
        free(owned->stop);
        owned->stop = strings;
        params->stop = (const char *const *)strings;
        params->num_stop = count;
    } else {
        if (!unset) status = parse_biases(&biases, &count, value, param, err);
        if (status) goto fail;
        free(owned->logit_bias);
        params->logit_bias = owned->logit_bias = biases;
        params->num_logit_bias = count;
    }
    params->owned = owned;
    return OK;

fail:
    if (!params->owned) free(owned);
    return status;
}

static enum status check_length(const char *name, const void *list, size_t len, int max,
                                struct err *err) {
    if (len > (size_t)max) return too_long(name, len, max, err);
    if (len && !list) return err_set(err, ERR_INVALID, "%s is NULL with %zu entries", name, len);
    return OK;
}

static enum status check_stop(const struct nvllm_sampling_params *params, struct err *err) {
    enum status status = check_length("stop", params->stop, params->num_stop, PARAMS_STOP_MAX, err);
    for (size_t i = 0; !status && i < params->num_stop; i++) {
        const char *stop = params->stop[i];
        status = stop ? check_stop_string(i, stop, strnlen(stop, PARAMS_STOP_BYTES_MAX + 1), err)
                      : err_set(err, ERR_INVALID, "entry %zu of stop is NULL", i);
    }
    return status;
}

static enum status check_ids(const struct nvllm_sampling_params *params, struct err *err) {
    enum status status = check_length("stop_token_ids", params->stop_token_ids,
                                      params->num_stop_token_ids, PARAMS_STOP_TOKEN_IDS_MAX, err);
    for (size_t i = 0; !status && i < params->num_stop_token_ids; i++) {
        int32_t id = params->stop_token_ids[i];
        if (id < 0) {
            status = err_set(err, ERR_INVALID,
                             "entry %zu of stop_token_ids is %d, want a token id from 0 to %d", i,
                             id, INT32_MAX);
        }
    }
    return status;
}

enum status params_list_check(const struct nvllm_sampling_params *params,
                              const struct nvllm_param *param, struct err *err) {
    if (param->type == NVLLM_PARAM_STRINGS) return check_stop(params, err);
    if (param->type == NVLLM_PARAM_IDS) return check_ids(params, err);
    enum status status = check_length("logit_bias", params->logit_bias, params->num_logit_bias,
                                      PARAMS_LOGIT_BIAS_MAX, err);
    for (size_t i = 0; !status && i < params->num_logit_bias; i++) {
        struct nvllm_logit_bias entry = params->logit_bias[i];
        double bias = (double)entry.bias;
        bool banned = isinf(bias) && bias < 0;
        if (entry.token_id < 0) {
            status = err_set(err, ERR_INVALID, "logit_bias names token %d", entry.token_id);
        } else if (!banned && !(bias >= param->min && bias <= param->max)) {
            status = err_set(err, ERR_INVALID,
                             "logit_bias of token %d is %.9g, want a number from %.10g to %.10g or "
                             "-INFINITY",
                             entry.token_id, bias, param->min, param->max);
        }
    }
    return status;
}
