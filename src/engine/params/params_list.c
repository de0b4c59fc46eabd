/* Lists are taken completely into one new allocation each before the old one is freed, so that a
 * refused value leaves the parameters as they were. */
#include "engine/params/params_list.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/json/jread.h"
#include "base/json/jwrite.h"
#include "engine/params/params.h"

enum { ID_BYTES_MAX = 10 }; // of a token id as text

// One list of the sampling parameters: where it is in their struct, and its bounds.
struct list {
    size_t pointer, count; // offsets
    int entries_min; // 1: empty is refused, no list at all means something else
    int entries_max;
    int bytes_max; // of a string
};

#define LIST(type, name, entries_min, entries_max, bytes_max, help)                                \
    {offsetof(struct nvllm_sampling_params, name),                                                 \
     offsetof(struct nvllm_sampling_params, num_##name), entries_min, entries_max, bytes_max},

static const struct list lists[] = {NVLLM_LIST_PARAMS(LIST)};

// What params->owned points to: one allocation for each list, NULL where the list is not ours. A
// list of strings has their bytes behind the pointers.
struct params_owned {
    void *lists[ARRAY_LEN(lists)];
};

static size_t index_of(const struct nvllm_param *param) {
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        if (lists[i].pointer == param->offset) return i;
    }
    CHECK(false, "%s is no list", param->name);
    return 0;
}

static const struct list *list_of(const struct nvllm_param *param) {
    return &lists[index_of(param)];
}

size_t params_text_max(const struct nvllm_param *param) {
    if (!params_is_list(param)) return PARAMS_TEXT_BYTES_MAX;
    const struct list *list = list_of(param);
    int bytes = list->entries_max * (list->bytes_max ? list->bytes_max : ID_BYTES_MAX);
    return bytes > PARAMS_TEXT_BYTES_MAX ? PARAMS_LONG_TEXT_BYTES_MAX : PARAMS_TEXT_BYTES_MAX;
}

bool params_is_list(const struct nvllm_param *param) {
    return param->type == NVLLM_PARAM_STRINGS || param->type == NVLLM_PARAM_IDS ||
           param->type == NVLLM_PARAM_BIASES || param->type == NVLLM_PARAM_JSON;
}

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

void params_list_free_owned(void *memory) {
    struct params_owned *owned = memory;
    if (!owned) return;
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) free(owned->lists[i]);
    free(owned);
}

enum status params_refuse(const char *name, const struct params_value *value, const char *want,
                          struct err *err) {
    char excerpt[PARAMS_EXCERPT_MAX];
    struct buf text = {0};
    enum status status = OK;
    if (!value->text) {
        status = jwrite(&text, value->json, JSON_ENCODE_ANY | JSON_COMPACT, name, err);
    }
    if (!status) {
        params_excerpt(excerpt, value->text ? value->text : text.data);
        status = err_set(err, ERR_INVALID, "%s is %s, want %s", name, excerpt, want);
    }
    buf_fini(&text);
    return status;
}

static enum status too_long(const struct nvllm_param *param, size_t len, int max, struct err *err) {
    const char *unit = param->type == NVLLM_PARAM_JSON ? "bytes" : "entries";
    return err_set(err, ERR_INVALID, "%s has %zu %s, want at most %d", param->name, len, unit, max);
}

static enum status wrong_entry(const char *name, size_t index, const json_t *entry,
                               const char *want, struct err *err) {
    return err_set(err, ERR_INVALID, "entry %zu of %s is %s, want %s", index, name,
                   jread_type_name(entry), want);
}

// Checks the number of entries of a parsed list.
static enum status check_size(const struct nvllm_param *param, size_t size, struct err *err) {
    const struct list *list = list_of(param);
    if (size > (size_t)list->entries_max) {
        return too_long(param, size, list->entries_max, err);
    }
    if (size >= (size_t)list->entries_min) return OK;
    return err_set(err, ERR_INVALID, "%s is empty, want at least one entry", param->name);
}

// Entry `index` of a list of strings; `text` [len] may hold NUL.
static enum status check_string(const struct nvllm_param *param, size_t index, const char *text,
                                size_t len, struct err *err) {
    int bytes_max = list_of(param)->bytes_max;
    const char *name = param->name;
    if (len == 0) return err_set(err, ERR_INVALID, "entry %zu of %s is empty", index, name);
    if (len > (size_t)bytes_max) {
        return err_set(err, ERR_INVALID, "entry %zu of %s is longer than %d bytes", index, name,
                       bytes_max);
    }
    if (!memchr(text, '\0', len)) return OK;
    return err_set(err, ERR_INVALID, "entry %zu of %s has a NUL character, which none may have",
                   index, name);
}

// The pointers and the bytes of all strings in one allocation; `entries` is a list of strings.
static enum status copy_strings(char ***out, const struct nvllm_param *param, const json_t *entries,
                                struct err *err) {
    size_t count = json_array_size(entries);
    size_t bytes = count * sizeof(char *);
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(entries, i);
        if (!json_is_string(entry)) return wrong_entry(param->name, i, entry, "a string", err);
        size_t len = json_string_length(entry);
        enum status status = check_string(param, i, json_string_value(entry), len, err);
        if (status) return status;
        bytes += len + 1;
    }
    char **strings = malloc(bytes);
    if (!strings) return err_nomem(err, param->name);
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
static enum status copy_bare_string(char ***out, size_t *count, const struct nvllm_param *param,
                                    const char *value, struct err *err) {
    if (*value && strchr("[{\"", *skip_space(value))) {
        const struct params_value broken = {.json = NULL, .text = value};
        return params_refuse(param->name, &broken, "a string or a list of strings", err);
    }
    size_t len = strlen(value);
    enum status status = check_string(param, 0, value, len, err);
    if (status) return status;
    char **strings = malloc(sizeof *strings + len + 1);
    if (!strings) return err_nomem(err, param->name);
    strings[0] = (char *)(strings + 1);
    memcpy(strings[0], value, len + 1);
    *out = strings;
    *count = 1;
    return OK;
}

static enum status take_strings(char ***out, size_t *count, const struct nvllm_param *param,
                                const struct params_value *value, struct err *err) {
    if (!value->json) return copy_bare_string(out, count, param, value->text, err);
    bool is_one = json_is_string(value->json);
    if (!is_one && !json_is_array(value->json)) {
        return params_refuse(param->name, value, "a string (in quotes) or a list of strings", err);
    }
    json_t *list = is_one ? json_array() : json_incref((json_t *)(uintptr_t)value->json);
    if (is_one && json_array_append(list, (json_t *)(uintptr_t)value->json)) {
        json_decref(list);
        return err_nomem(err, param->name);
    }
    enum status status = check_size(param, json_array_size(list), err);
    if (!status) {
        *count = json_array_size(list);
        status = *count ? copy_strings(out, param, list, err) : OK;
    }
    json_decref(list);
    return status;
}

static enum status check_id(const struct nvllm_param *param, size_t index, long long id,
                            struct err *err) {
    if (id >= 0 && id <= INT32_MAX) return OK;
    return err_set(err, ERR_INVALID, "entry %zu of %s is %lld, want a token id from 0 to %d", index,
                   param->name, id, INT32_MAX);
}

static enum status copy_ids(int32_t **out, const struct nvllm_param *param, const json_t *entries,
                            struct err *err) {
    size_t count = json_array_size(entries);
    int32_t *ids = malloc(count * sizeof *ids);
    if (!ids) return err_nomem(err, param->name);
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(entries, i);
        json_int_t id = json_integer_value(entry);
        enum status status = json_is_integer(entry)
                                 ? check_id(param, i, id, err)
                                 : wrong_entry(param->name, i, entry, "a token id", err);
        if (status) {
            free(ids);
            return status;
        }
        ids[i] = (int32_t)id;
    }
    *out = ids;
    return OK;
}

static enum status take_ids(int32_t **out, size_t *count, const struct nvllm_param *param,
                            const struct params_value *value, struct err *err) {
    if (!json_is_array(value->json)) {
        return params_refuse(param->name, value, "a list of token ids", err);
    }
    enum status status = check_size(param, json_array_size(value->json), err);
    if (status) return status;
    *count = json_array_size(value->json);
    return *count ? copy_ids(out, param, value->json, err) : OK;
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
    // A string may contain NUL.
    if (json_string_length(bias) == 4 && strcmp(json_string_value(bias), "-inf") == 0) {
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

static enum status copy_biases(struct nvllm_logit_bias **out, const json_t *map,
                               const struct nvllm_param *param, struct err *err) {
    struct nvllm_logit_bias *biases = malloc(json_object_size(map) * sizeof *biases);
    if (!biases) return err_nomem(err, "logit_bias");
    size_t i = 0;
    const char *key;
    json_t *bias;
    json_object_foreach((json_t *)(uintptr_t)map, key, bias) {
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

static enum status take_biases(struct nvllm_logit_bias **out, size_t *count,
                               const struct nvllm_param *param, const struct params_value *value,
                               struct err *err) {
    if (!jread_is_object(value->json)) {
        return params_refuse("logit_bias", value, "a map of token ids to biases", err);
    }
    enum status status = check_size(param, json_object_size(value->json), err);
    if (status) return status;
    *count = json_object_size(value->json);
    return *count ? copy_biases(out, value->json, param, err) : OK;
}

// Keeps the object as compact text.
static enum status take_object(char **out, size_t *count, const struct nvllm_param *param,
                               const struct params_value *value, struct err *err) {
    if (!jread_is_object(value->json))
        return params_refuse(param->name, value, "a JSON object", err);
    struct buf text = {0};
    enum status status = jwrite(&text, value->json, JSON_COMPACT, param->name, err);
    if (!status) status = check_size(param, text.len, err);
    if (status) {
        buf_fini(&text);
        return status;
    }
    *out = text.data;
    *count = text.len;
    return OK;
}

// Copies the pointer as bytes, because the lists' pointers have different types.
static void set_list(struct nvllm_sampling_params *params, const struct list *list, void *entries,
                     size_t count) {
    memcpy((char *)params + list->pointer, &entries, sizeof entries);
    memcpy((char *)params + list->count, &count, sizeof count);
}

static void get_list(const struct nvllm_sampling_params *params, const struct list *list,
                     const void **entries, size_t *count) {
    memcpy(entries, (const char *)params + list->pointer, sizeof *entries);
    memcpy(count, (const char *)params + list->count, sizeof *count);
}

static enum status take_list(void **out, size_t *count, const struct nvllm_param *param,
                             const struct params_value *value, struct err *err) {
    int32_t *ids = NULL;
    char **strings = NULL;
    struct nvllm_logit_bias *biases = NULL;
    char *object = NULL;
    enum status status;
    if (param->type == NVLLM_PARAM_JSON) {
        status = take_object(&object, count, param, value, err);
        *out = object;
    } else if (param->type == NVLLM_PARAM_IDS) {
        status = take_ids(&ids, count, param, value, err);
        *out = ids;
    } else if (param->type == NVLLM_PARAM_STRINGS) {
        status = take_strings(&strings, count, param, value, err);
        *out = strings;
    } else {
        status = take_biases(&biases, count, param, value, err);
        *out = biases;
    }
    return status;
}

enum status params_list_set(struct nvllm_sampling_params *params, const struct nvllm_param *param,
                            const struct params_value *value, struct err *err) {
    void *entries = NULL;
    size_t count = 0;
    struct params_owned *owned = params->owned ? params->owned : calloc(1, sizeof *owned);
    if (!owned) return err_nomem(err, param->name);
    if (!json_is_null(value->json)) {
        enum status status = take_list(&entries, &count, param, value, err);
        if (status) {
            if (!params->owned) free(owned);
            return status;
        }
    }
    void **ours = &owned->lists[index_of(param)];
    free(*ours);
    *ours = entries;
    set_list(params, list_of(param), entries, count);
    params->owned = owned;
    return OK;
}

static enum status check_strings(const struct nvllm_param *param, const char *const *strings,
                                 size_t count, struct err *err) {
    enum status status = OK;
    size_t bytes_max = (size_t)list_of(param)->bytes_max;
    for (size_t i = 0; !status && i < count; i++) {
        status = strings[i]
                     ? check_string(param, i, strings[i], strnlen(strings[i], bytes_max + 1), err)
                     : err_set(err, ERR_INVALID, "entry %zu of %s is NULL", i, param->name);
    }
    return status;
}

static enum status check_ids(const struct nvllm_param *param, const int32_t *ids, size_t count,
                             struct err *err) {
    enum status status = OK;
    for (size_t i = 0; !status && i < count; i++) status = check_id(param, i, ids[i], err);
    return status;
}

static enum status check_biases(const struct nvllm_param *param,
                                const struct nvllm_logit_bias *biases, size_t count,
                                struct err *err) {
    enum status status = OK;
    for (size_t i = 0; !status && i < count; i++) {
        double bias = (double)biases[i].bias;
        bool banned = isinf(bias) && bias < 0;
        if (biases[i].token_id < 0) {
            status = err_set(err, ERR_INVALID, "logit_bias names token %d, want an id of 0 or more",
                             biases[i].token_id);
        } else if (!banned && !(bias >= param->min && bias <= param->max)) {
            status = err_set(err, ERR_INVALID,
                             "logit_bias of token %d is %.9g, want a number from %.10g to %.10g or "
                             "-INFINITY",
                             biases[i].token_id, bias, param->min, param->max);
        }
    }
    return status;
}

enum status params_list_check(const struct nvllm_sampling_params *params,
                              const struct nvllm_param *param, struct err *err) {
    const struct list *list = list_of(param);
    const void *entries;
    size_t count;
    get_list(params, list, &entries, &count);
    if (count > (size_t)list->entries_max) {
        return too_long(param, count, list->entries_max, err);
    }
    if (count && !entries) {
        return err_set(err, ERR_INVALID, "%s is NULL with %zu entries", param->name, count);
    }
    if (param->type == NVLLM_PARAM_JSON) return OK; // its content is read when it is compiled
    if (param->type == NVLLM_PARAM_STRINGS) return check_strings(param, entries, count, err);
    if (param->type == NVLLM_PARAM_IDS) return check_ids(param, entries, count, err);
    return check_biases(param, entries, count, err);
}
