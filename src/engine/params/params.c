/* The parameter tables and what reads them: setting a field by name from JSON text, and checking a
 * whole struct. Rules that a table cannot hold (a multiple, two fields together) are functions
 * below. Lists of sampling parameters are parsed in params_list.c. */
#include "engine/params/params.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/gpu_choice.h"
#include "base/json/jread.h"
#include "base/json/jwrite.h"
#include "base/text/c_locale.h"
#include "base/text/suggest.h"
#include "comm/comm.h"
#include "engine/params/params_list.h"

enum { BLOCK_SIZE_MULTIPLE = 16, SENTENCE_MAX = 160 };

_Static_assert((int)NVLLM_RANKS_MAX == (int)COMM_RANKS_MAX, "the range of tensor_parallel_size");

#define SAMPLING(field) offsetof(struct nvllm_sampling_params, field)
#define OPTION(field) offsetof(struct nvllm_engine_options, field)

// The parts of a help sentence that a row's other columns say.
#define DEFAULT_INT(value) #value
#define DEFAULT_INT64(value) #value
#define DEFAULT_FLOAT(value) #value
#define DEFAULT_DOUBLE(value) #value
#define DEFAULT_BOOL(value) DEFAULT_BOOL_##value
#define DEFAULT_BOOL_0 "false"
#define DEFAULT_BOOL_1 "true"
#define SIZE_IDS(entries, bytes) "list of at most " #entries " token ids "
#define SIZE_STRINGS(entries, bytes)                                                               \
    "string or list of at most " #entries " strings of at most " #bytes " bytes "
#define SIZE_BIASES(entries, bytes) "map of at most " #entries " token ids "
#define SIZE_JSON(entries, bytes) "JSON object of at most " #entries " bytes "
// Of an entry.
#define RANGE_JSON 0, 0
#define RANGE_IDS 0, INT32_MAX
#define RANGE_STRINGS 0, 0
#define RANGE_BIASES -100, 100

#define MODEL_ROW(type, name, value, min, max, help)                                               \
    {#name,                                                                                        \
     NVLLM_PARAM_##type,                                                                           \
     SAMPLING(name),                                                                               \
     min,                                                                                          \
     max,                                                                                          \
     NULL,                                                                                         \
     help "; default: the model's, else " DEFAULT_##type(value)},
#define NUMBER_ROW(type, name, value, min, max, help)                                              \
    {#name,                                                                                        \
     NVLLM_PARAM_##type,                                                                           \
     SAMPLING(name),                                                                               \
     min,                                                                                          \
     max,                                                                                          \
     NULL,                                                                                         \
     help "; default " DEFAULT_##type(value)},
#define LIST_ROW(type, name, entries_min, entries_max, bytes_max, help)                            \
    {#name,          NVLLM_PARAM_##type,                                                           \
     SAMPLING(name), RANGE_##type,                                                                 \
     NULL,           SIZE_##type(entries_max, bytes_max) help},

static const struct nvllm_param sampling_table[] = {
    NVLLM_MODEL_PARAMS(MODEL_ROW) NVLLM_SAMPLER_PARAMS(NUMBER_ROW) NVLLM_REQUEST_PARAMS(NUMBER_ROW)
        NVLLM_LIST_PARAMS(LIST_ROW)};

#define OPTION_ROW(type, name, value, min, max, help)                                              \
    {#name,                                                                                        \
     NVLLM_PARAM_##type,                                                                           \
     OPTION(name),                                                                                 \
     min,                                                                                          \
     max,                                                                                          \
     NULL,                                                                                         \
     help "; default " DEFAULT_##type(value)},
#define CHOICE_ROW(name, value, choices, help)                                                     \
    {#name, NVLLM_PARAM_STRING, OPTION(name), 0, 0, choices, help "; default " value},
#define TEXT_ROW(name, value, help) {#name, NVLLM_PARAM_STRING, OPTION(name), 0, 0, NULL, help},

static const struct nvllm_param option_table[] = {
    NVLLM_ENGINE_OPTIONS(OPTION_ROW, CHOICE_ROW, TEXT_ROW)};

// The defaults of the rows.
#define NUMBER_DEFAULT(type, name, value, ...) DEFAULT_##type(value),
#define LIST_DEFAULT(...) NULL,
#define STRING_DEFAULT(name, value, ...) value,

static const char *const sampling_default_texts[] = {
    NVLLM_MODEL_PARAMS(NUMBER_DEFAULT) NVLLM_SAMPLER_PARAMS(NUMBER_DEFAULT)
        NVLLM_REQUEST_PARAMS(NUMBER_DEFAULT) NVLLM_LIST_PARAMS(LIST_DEFAULT)};
static const char *const option_default_texts[] = {
    NVLLM_ENGINE_OPTIONS(NUMBER_DEFAULT, STRING_DEFAULT, STRING_DEFAULT)};

static const struct nvllm_sampling_params sampling_defaults = NVLLM_SAMPLING_PARAMS_INIT;
static const struct nvllm_engine_options option_defaults = NVLLM_ENGINE_OPTIONS_INIT;

const struct nvllm_param *params_sampling(size_t index) {
    return index < ARRAY_LEN(sampling_table) ? &sampling_table[index] : NULL;
}

const struct nvllm_param *params_engine_option(size_t index) {
    return index < ARRAY_LEN(option_table) ? &option_table[index] : NULL;
}

const char *params_sampling_default(size_t index) {
    return index < ARRAY_LEN(sampling_default_texts) ? sampling_default_texts[index] : NULL;
}

const char *params_engine_option_default(size_t index) {
    return index < ARRAY_LEN(option_default_texts) ? option_default_texts[index] : NULL;
}

static const struct nvllm_param *find_param(const struct nvllm_param *table, size_t num_params,
                                            const char *name, const char *kind, struct err *err) {
    const char *names[ARRAY_LEN(sampling_table) + ARRAY_LEN(option_table)];
    if (!name) name = "";
    for (size_t i = 0; i < num_params; i++) {
        if (strcmp(table[i].name, name) == 0) return &table[i];
        names[i] = table[i].name;
    }
    char excerpt[PARAMS_EXCERPT_MAX];
    params_excerpt(excerpt, name);
    const char *nearest = suggest_nearest(name, names, num_params);
    if (nearest) {
        err_set(err, ERR_INVALID, "unknown %s \"%s\"; did you mean \"%s\"?", kind, excerpt,
                nearest);
    } else {
        err_set(err, ERR_INVALID, "unknown %s \"%s\"", kind, excerpt);
    }
    return NULL;
}

static size_t field_size(enum nvllm_param_type type) {
    switch (type) {
    case NVLLM_PARAM_INT:
    case NVLLM_PARAM_BOOL:
        return sizeof(int32_t);
    case NVLLM_PARAM_INT64:
        return sizeof(int64_t);
    case NVLLM_PARAM_FLOAT:
        return sizeof(float);
    case NVLLM_PARAM_DOUBLE:
        return sizeof(double);
    case NVLLM_PARAM_STRING:
    case NVLLM_PARAM_STRINGS:
    case NVLLM_PARAM_IDS:
    case NVLLM_PARAM_BIASES:
    case NVLLM_PARAM_JSON:
        break;
    }
    return sizeof(void *);
}

static size_t append(char out[SENTENCE_MAX], size_t len, const char *text, size_t text_len) {
    if (text_len > SENTENCE_MAX - 1 - len) text_len = SENTENCE_MAX - 1 - len;
    memcpy(out + len, text, text_len);
    return len + text_len;
}

static void describe_choices(char out[SENTENCE_MAX], const char *choices) {
    static const char time[] = "milliseconds above 0, at most 60000"; // is_milliseconds
    size_t len = 0;
    for (const char *p = choices;;) {
        size_t choice_len = strcspn(p, "|");
        bool is_time = choice_len == 2 && memcmp(p, "MS", 2) == 0;
        len = append(out, len, is_time ? time : p, is_time ? sizeof time - 1 : choice_len);
        if (!p[choice_len]) break;
        p += choice_len + 1;
        const char *joint = strchr(p, '|') ? ", " : " or ";
        len = append(out, len, joint, strlen(joint));
    }
    out[len] = '\0';
}

// "an integer from 1 to 20": what a field wants, for the end of a sentence.
static void describe_range(char out[SENTENCE_MAX], const struct nvllm_param *param) {
    if (param->choices) {
        describe_choices(out, param->choices);
    } else if (param->type == NVLLM_PARAM_BOOL) {
        snprintf(out, SENTENCE_MAX, "true or false");
    } else if (param->type == NVLLM_PARAM_STRING) {
        snprintf(out, SENTENCE_MAX, "a string");
    } else if (param->type == NVLLM_PARAM_INT || param->type == NVLLM_PARAM_INT64) {
        long long max = param->max >= NVLLM_INT64_TOP ? INT64_MAX : (long long)param->max;
        snprintf(out, SENTENCE_MAX, "an integer from %lld to %lld", (long long)param->min, max);
    } else if (param->min == NVLLM_ABOVE_ZERO) {
        c_locale_snprintf(out, SENTENCE_MAX, "a number above 0 and at most %.10g", param->max);
    } else {
        c_locale_snprintf(out, SENTENCE_MAX, "a number from %.10g to %.10g", param->min,
                          param->max);
    }
}

static enum status refuse_value(const struct nvllm_param *param, const struct params_value *value,
                                struct err *err) {
    char want[SENTENCE_MAX];
    describe_range(want, param);
    return params_refuse(param->name, value, want, err);
}

static enum status refuse(const struct nvllm_param *param, const char *text, struct err *err) {
    return refuse_value(param, &(struct params_value){.json = NULL, .text = text}, err);
}

// Digits, and perhaps a point and further digits: above 0, at most 60000.
static bool is_milliseconds(const char *value) {
    enum { CHARS_MAX = 64, MILLISECONDS_MAX = 60000 };
    size_t whole = strspn(value, "0123456789"), fraction = 0;
    if (value[whole] == '.') fraction = 1 + strspn(value + whole + 1, "0123456789");
    if (!whole || fraction == 1 || value[whole + fraction] || whole + fraction > CHARS_MAX) {
        return false;
    }
    double number = c_locale_strtod(value, NULL);
    return number > 0 && number <= MILLISECONDS_MAX;
}

// N stands for a number, MS for a time, and ":N" at the end for all names of
// GPUs by number.
static bool is_this_choice(const char *choice, size_t len, const char *value) {
    if (len == 1 && *choice == 'N') {
        size_t digits = strspn(value, "0123456789");
        return digits > 0 && digits <= 4 && !value[digits];
    }
    if (len == 2 && memcmp(choice, "MS", 2) == 0) return is_milliseconds(value);
    if (len < 2 || memcmp(choice + len - 2, ":N", 2) != 0) {
        return strlen(value) == len && memcmp(choice, value, len) == 0;
    }
    if (strncmp(choice, value, len - 1) != 0) return false;
    struct gpu_choice gpus;
    return gpu_choice_parse_list(&gpus, value + len - 1);
}

static bool is_choice(const char *choices, const char *value) {
    for (const char *p = choices;;) {
        size_t len = strcspn(p, "|");
        if (is_this_choice(p, len, value)) return true;
        if (!p[len]) return false;
        p += len + 1;
    }
}

static enum status set_number(void *field, const struct nvllm_param *param,
                              const struct params_value *value, struct err *err) {
    const json_t *json = value->json;
    bool whole = param->type != NVLLM_PARAM_FLOAT && param->type != NVLLM_PARAM_DOUBLE;
    bool good = whole ? json_is_integer(json) : json_is_number(json);
    if (param->type == NVLLM_PARAM_BOOL && json_is_boolean(json)) good = true;
    double number = json_is_boolean(json) ? json_is_true(json) : json_number_value(json);
    int64_t integer = json_is_boolean(json) ? json_is_true(json) : json_integer_value(json);
    if (!good || !(number >= param->min && number <= param->max)) {
        return refuse_value(param, value, err);
    }
    if (param->type == NVLLM_PARAM_FLOAT) {
        float narrow = (float)number;
        memcpy(field, &narrow, sizeof narrow);
    } else if (param->type == NVLLM_PARAM_DOUBLE) {
        memcpy(field, &number, sizeof number);
    } else if (param->type == NVLLM_PARAM_INT64) {
        memcpy(field, &integer, sizeof integer);
    } else {
        int32_t narrow = (int32_t)integer;
        memcpy(field, &narrow, sizeof narrow);
    }
    return OK;
}

// Parses a value's text; *json is NULL where it is no JSON. ERR_NOMEM is the only fault.
static enum status parse_value(json_t **json, const struct nvllm_param *param, const char *text,
                               struct err *err) {
    bool has_strings = param->type == NVLLM_PARAM_STRINGS || param->type == NVLLM_PARAM_IDS;
    size_t len = strlen(text);
    struct err fault = {0};
    enum status status = has_strings ? jread_request(json, text, len, param->name, &fault)
                                     : jread_text(json, text, len, param->name, &fault);
    if (status != ERR_NOMEM) return OK;
    if (err) *err = fault;
    return status;
}

static enum status set_sampling(struct nvllm_sampling_params *params,
                                const struct nvllm_param *param, const struct params_value *value,
                                struct err *err) {
    if (params_is_list(param)) return params_list_set(params, param, value, err);
    void *field = (char *)params + param->offset;
    if (!json_is_null(value->json)) return set_number(field, param, value, err);
    memcpy(field, (const char *)&sampling_defaults + param->offset, field_size(param->type));
    return OK;
}

static enum status too_long(const struct nvllm_param *param, struct err *err) {
    return err_set(err, ERR_INVALID, "%s is longer than %zu KiB", param->name,
                   params_text_max(param) >> 10);
}

static const struct nvllm_param *find_sampling(const char *name, struct err *err) {
    return find_param(sampling_table, ARRAY_LEN(sampling_table), name, "sampling parameter", err);
}

enum status params_set_sampling(struct nvllm_sampling_params *params, const char *name,
                                const char *text, struct err *err) {
    const struct nvllm_param *param = find_sampling(name, err);
    if (!param) return ERR_INVALID;
    if (!text) return err_set(err, ERR_INVALID, "%s has no value", param->name);
    size_t max = params_text_max(param);
    if (strnlen(text, max + 1) > max) return too_long(param, err);
    json_t *json = NULL;
    enum status status = parse_value(&json, param, text, err);
    if (!status) status = set_sampling(params, param, &(struct params_value){json, text}, err);
    json_decref(json);
    return status;
}

enum status params_set_sampling_json(struct nvllm_sampling_params *params, const char *name,
                                     const json_t *json, struct err *err) {
    const struct nvllm_param *param = find_sampling(name, err);
    if (!param) return ERR_INVALID;
    enum status status =
        set_sampling(params, param, &(struct params_value){.json = json, .text = NULL}, err);
    if (status != ERR_INVALID) return status;
    // What is refused may also be too long, which says more. All that is accepted is shorter.
    struct buf text = {0};
    enum status fault = jwrite(&text, json, JSON_ENCODE_ANY | JSON_COMPACT, param->name, err);
    if (fault) {
        status = fault;
    } else if (text.len > params_text_max(param)) {
        status = too_long(param, err);
    }
    buf_fini(&text);
    return status;
}

static enum status check_block_size(int32_t block_size, struct err *err) {
    if (block_size % BLOCK_SIZE_MULTIPLE == 0) return OK;
    return err_set(err, ERR_INVALID, "block_size is %d, want a multiple of %d", block_size,
                   BLOCK_SIZE_MULTIPLE);
}

enum status params_set_engine_option(struct nvllm_engine_options *options, const char *name,
                                     const char *text, struct err *err) {
    const struct nvllm_param *param =
        find_param(option_table, ARRAY_LEN(option_table), name, "engine option", err);
    if (!param) return ERR_INVALID;
    if (!text) return err_set(err, ERR_INVALID, "%s has no value", param->name);
    struct nvllm_engine_options changed = *options;
    void *field = (char *)&changed + param->offset;
    json_t *json = NULL;
    enum status status = parse_value(&json, param, text, err);
    if (status) return status;
    if (json_is_null(json)) {
        memcpy(field, (const char *)&option_defaults + param->offset, field_size(param->type));
    } else if (param->type == NVLLM_PARAM_STRING) {
        if (param->choices && !is_choice(param->choices, text)) {
            status = refuse(param, text, err);
        } else {
            memcpy(field, &text, sizeof text);
        }
    } else {
        status = set_number(field, param, &(struct params_value){json, text}, err);
    }
    json_decref(json);
    if (!status && param->offset == OPTION(block_size)) {
        status = check_block_size(changed.block_size, err);
    }
    if (!status) *options = changed;
    return status;
}

void params_fini_sampling(struct nvllm_sampling_params *params) {
    if (!params) return;
    params_list_free_owned(params->owned);
    *params = sampling_defaults;
}

static enum status check_number(const struct nvllm_param *param, const void *field,
                                struct err *err) {
    double number = 0;
    char text[48];
    if (param->type == NVLLM_PARAM_FLOAT) {
        float value;
        memcpy(&value, field, sizeof value);
        number = (double)value;
        c_locale_snprintf(text, sizeof text, "%.9g", number);
    } else if (param->type == NVLLM_PARAM_DOUBLE) {
        memcpy(&number, field, sizeof number);
        c_locale_snprintf(text, sizeof text, "%.17g", number);
    } else if (param->type == NVLLM_PARAM_INT64) {
        int64_t value;
        memcpy(&value, field, sizeof value);
        number = (double)value;
        snprintf(text, sizeof text, "%lld", (long long)value);
    } else {
        int32_t value;
        memcpy(&value, field, sizeof value);
        number = value;
        snprintf(text, sizeof text, "%d", value);
    }
    if (number >= param->min && number <= param->max) return OK; // NaN is neither
    return refuse(param, text, err);
}

static enum status check_string(const struct nvllm_param *param, const void *field,
                                struct err *err) {
    const char *value;
    memcpy(&value, field, sizeof value);
    if (!value || !param->choices || is_choice(param->choices, value)) return OK;
    return refuse(param, value, err);
}

enum status params_check_sampling(const struct nvllm_sampling_params *params, struct err *err) {
    for (size_t i = 0; i < ARRAY_LEN(sampling_table); i++) {
        const struct nvllm_param *param = &sampling_table[i];
        const char *field = (const char *)params + param->offset;
        const char *unset = (const char *)&sampling_defaults + param->offset;
        bool is_list = params_is_list(param);
        if (!is_list && memcmp(field, unset, field_size(param->type)) == 0) continue;
        enum status status =
            is_list ? params_list_check(params, param, err) : check_number(param, field, err);
        if (status) return status;
    }
    return OK;
}

enum status params_check_engine_options(const struct nvllm_engine_options *options,
                                        struct err *err) {
    for (size_t i = 0; i < ARRAY_LEN(option_table); i++) {
        const struct nvllm_param *param = &option_table[i];
        const char *field = (const char *)options + param->offset;
        enum status status = param->type == NVLLM_PARAM_STRING ? check_string(param, field, err)
                                                               : check_number(param, field, err);
        if (status) return status;
    }
    if (!options->model || !options->model[0]) {
        return err_set(err, ERR_INVALID, "model is not set, want the folder of a checkpoint");
    }
    enum status status = check_block_size(options->block_size, err);
    if (status) return status;
    if (options->num_kvcache_blocks > INT32_MAX / options->block_size) {
        return err_set(
            err, ERR_INVALID, "num_kvcache_blocks is %d, want at most %d with a block_size of %d",
            options->num_kvcache_blocks, INT32_MAX / options->block_size, options->block_size);
    }
    return OK;
}
