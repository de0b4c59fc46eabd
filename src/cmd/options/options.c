/* Parses flags. Each is looked up in the groups' rows, and its group's setter sets it. The values
 * of a list are collected first and set once, because a setter replaces a list instead of appending
 * to it. options_print.c prints --help, man pages and completions. */
#include "cmd/options/options.h"

#include <errno.h>
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/json/jread.h"
#include "base/json/jwrite.h"
#include "base/text/suggest.h"

// ---- rows as flags ----

const struct nvllm_param *option_group_next(const struct option_group *group, size_t *index) {
    const struct nvllm_param *row;
    while ((row = group->row((*index)++))) {
        if (!group->hidden || strcmp(group->hidden, row->name) != 0) return row;
    }
    return NULL;
}

char option_letter(const struct nvllm_param *row) {
    static const struct {
        const char *row;
        char letter;
    } letters[] = {
        {"model", 'm'},      {"prompt", 'p'},  {"input_len", 'p'},     {"max_tokens", 'n'},
        {"output_len", 'n'}, {"threads", 't'}, {"max_model_len", 'c'}, {"seed", 's'},
    };
    for (size_t i = 0; i < ARRAY_LEN(letters); i++) {
        if (strcmp(letters[i].row, row->name) == 0) return letters[i].letter;
    }
    return 0;
}

static void spell(char flag[OPTION_FLAG_BYTES_MAX], const char *prefix, const char *name) {
    snprintf(flag, OPTION_FLAG_BYTES_MAX, "--%s%s", prefix, name);
    for (char *c = flag; *c; c++) {
        if (*c == '_') *c = '-';
    }
}

size_t option_spellings(const struct nvllm_param *row,
                        char flags[OPTION_SPELLINGS_MAX][OPTION_FLAG_BYTES_MAX]) {
    size_t count = 0;
    spell(flags[count++], "", row->name);
    if (row->type != NVLLM_PARAM_BOOL) return count;
    if (strncmp(row->name, "enable_", 7) == 0) spell(flags[count++], "disable-", row->name + 7);
    spell(flags[count++], "no-", row->name);
    return count;
}

const char *option_value_name(const struct nvllm_param *row) {
    static const struct {
        const char *row, *value;
    } names[] = {
        {"model", "MODEL"},         {"cache_dir", "DIR"},
        {"input", "FILE"},          {"output", "FILE"},
        {"stats", "FILE"},          {"load", "FILE"},
        {"trace", "FILE"},          {"chat_template", "FILE"},
        {"worker_program", "FILE"}, {"uds", "PATH"},
        {"ssl_certfile", "FILE"},   {"ssl_keyfile", "FILE"},
        {"api_key_file", "FILE"},   {"chat_template_kwargs", "JSON"},
        {"json_schema", "FILE"},    {"grammar", "FILE"},
        {"regex", "PATTERN"},
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(names[i].row, row->name) == 0) return names[i].value;
    }
    switch (row->type) {
    case NVLLM_PARAM_INT:
    case NVLLM_PARAM_INT64:
        return "N";
    case NVLLM_PARAM_FLOAT:
    case NVLLM_PARAM_DOUBLE:
        return "X";
    case NVLLM_PARAM_BOOL:
        return NULL;
    case NVLLM_PARAM_STRING:
        return row->choices ? "NAME" : "TEXT";
    case NVLLM_PARAM_STRINGS:
        return "TEXT";
    case NVLLM_PARAM_IDS:
        return "ID,...";
    case NVLLM_PARAM_BIASES:
        return "ID=X,...";
    case NVLLM_PARAM_JSON:
        return "JSON";
    }
    return NULL;
}

void option_range(const struct nvllm_param *row, char *out, size_t size) {
    bool number = row->type == NVLLM_PARAM_INT || row->type == NVLLM_PARAM_INT64 ||
                  row->type == NVLLM_PARAM_FLOAT || row->type == NVLLM_PARAM_DOUBLE;
    bool has_min = number && row->min > -2147483647.0;
    bool has_max = number && row->max < 2147483647.0;
    // The tables write "above 0" as the smallest positive normal float.
    bool above_zero = row->type == NVLLM_PARAM_FLOAT && row->min == (double)FLT_MIN;
    out[0] = '\0';
    if (row->choices) {
        snprintf(out, size, "{%s}", row->choices);
    } else if (above_zero && has_max) {
        snprintf(out, size, "[above 0 to %.10g]", row->max);
    } else if (has_min && has_max) {
        snprintf(out, size, "[%.10g to %.10g]", row->min, row->max);
    } else if (has_min) {
        snprintf(out, size, "[%.10g or more]", row->min);
    } else if (has_max) {
        snprintf(out, size, "[at most %.10g]", row->max);
    }
}

// ---- names of other programs ----

#define GET_A_MODEL "-m takes a folder or a name such as Qwen/Qwen3-0.6B, which it downloads"
#define ONE_DEVICE "the whole model runs on it"

static const struct foreign_flag foreign_flags[] = {
    // llama.cpp's.
    {"-ngl", "device", ONE_DEVICE},
    {"--gpu-layers", "device", ONE_DEVICE},
    {"--n-gpu-layers", "device", ONE_DEVICE},
    {"--ctx-size", "max_model_len", NULL},
    {"--predict", "max_tokens", NULL},
    {"--n-predict", "max_tokens", NULL},
    {"-np", "max_num_seqs", NULL},
    {"--parallel", "max_num_seqs", NULL},
    {"-b", "max_num_batched_tokens", NULL},
    {"-ub", "max_num_batched_tokens", NULL},
    {"--batch-size", "max_num_batched_tokens", NULL},
    {"--ubatch-size", "max_num_batched_tokens", NULL},
    {"-ctk", "kv_cache_dtype", "keys and values have the same"},
    {"-ctv", "kv_cache_dtype", "keys and values have the same"},
    {"--cache-type-k", "kv_cache_dtype", "keys and values have the same"},
    {"--cache-type-v", "kv_cache_dtype", "keys and values have the same"},
    {"--repeat-penalty", "repetition_penalty", NULL},
    {"-sys", "system", NULL},
    {"--system-prompt", "system", NULL},
    {"--chat-template-file", "chat_template", NULL},
    {"-cnv", NULL, "nanovllm chat is a conversation"},
    {"--conversation", NULL, "nanovllm chat is a conversation"},
    {"-fa", NULL, "attention needs no flag"},
    {"--flash-attn", NULL, "attention needs no flag"},
    {"--jinja", NULL, "the model's chat template is always used"},
    {"-hf", NULL, GET_A_MODEL},
    {"-hfr", NULL, GET_A_MODEL},
    {"--hf-repo", NULL, GET_A_MODEL},
    // vLLM's.
    {"-tp", "tensor_parallel_size", NULL},
    {"-dp", "data_parallel_size", NULL},
    {"--enable-auto-tool-choice", NULL, "tool calls are found without it"},
    {"--trust-remote-code", NULL, "no code of a model is run"},
};

static const struct {
    const char *theirs, *instead;
} commands[] = {
    {"complete", "generate completes a text"},
    {"cli", "chat talks with a model, generate completes a text"},
    {"download", "pull downloads a model"},
    {"ps", "nothing runs in the background; GET /v1/models asks a server for its model"},
    {"stop", "Ctrl-C or SIGTERM ends a server"},
    {"show", "inspect shows a model"},
    {"run-batch", "generate --input FILE takes a request on each line"},
};

const struct foreign_flag *foreign_flag_find(const char *flag, size_t len) {
    for (size_t i = 0; i < ARRAY_LEN(foreign_flags); i++) {
        bool is_it = strlen(foreign_flags[i].theirs) == len &&
                     memcmp(foreign_flags[i].theirs, flag, len) == 0;
        if (is_it) return &foreign_flags[i];
    }
    return NULL;
}

const char *foreign_command(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        if (strcmp(commands[i].theirs, name) == 0) return commands[i].instead;
    }
    return NULL;
}

// ---- parsing ----

enum { FLAGS_MAX = 256 };

struct flag_match {
    const struct option_group *group; // NULL: no such flag
    const struct nvllm_param *row;
    bool negated; // --no-x, --disable-x
};

// `text` is a flag without its dashes, in which '_' stands for '-'.
static bool row_matches(const struct nvllm_param *row, const char *text, size_t len,
                        bool *negated) {
    char flags[OPTION_SPELLINGS_MAX][OPTION_FLAG_BYTES_MAX];
    size_t count = option_spellings(row, flags);
    for (size_t i = 0; i < count; i++) {
        const char *flag = flags[i] + 2;
        size_t at = 0;
        while (at < len && (text[at] == '_' ? '-' : text[at]) == flag[at]) at++;
        *negated = i > 0;
        if (at == len && !flag[at]) return true;
    }
    return false;
}

// By the flag's name or, where that is NULL, by its letter.
static struct flag_match find_flag(const struct options *options, const char *text, size_t len,
                                   char letter) {
    struct flag_match match = {0};
    for (size_t g = 0; g < options->num_groups; g++) {
        const struct option_group *group = &options->groups[g];
        const struct nvllm_param *row;
        for (size_t i = 0; (row = option_group_next(group, &i));) {
            if (text ? !row_matches(row, text, len, &match.negated) : option_letter(row) != letter)
                continue;
            match.group = group;
            match.row = row;
            return match;
        }
    }
    return match;
}

// A flag of another program. OK: it is not known, or the command has nothing that does the same.
static enum status explain_foreign(const struct options *options, const char *arg, size_t len,
                                   struct err *err) {
    const struct foreign_flag *foreign = foreign_flag_find(arg, len);
    if (!foreign) return OK;
    if (!foreign->row) {
        return err_set(err, ERR_INVALID, "unknown option %s: %s", foreign->theirs, foreign->note);
    }
    struct flag_match match = find_flag(options, foreign->row, strlen(foreign->row), 0);
    if (!match.group) return OK;
    char flags[OPTION_SPELLINGS_MAX][OPTION_FLAG_BYTES_MAX];
    option_spellings(match.row, flags);
    return err_set(err, ERR_INVALID, "unknown option %s; here it is %s%s%s", foreign->theirs,
                   flags[0], foreign->note ? ": " : "", foreign->note ? foreign->note : "");
}

static enum status unknown_flag(const struct options *options, const char *arg, size_t len,
                                struct err *err) {
    enum status status = explain_foreign(options, arg, len, err);
    if (status) return status;
    char flags[FLAGS_MAX][OPTION_FLAG_BYTES_MAX] = {"--help"};
    const char *candidates[FLAGS_MAX];
    size_t num_flags = 1;
    for (size_t g = 0; g < options->num_groups; g++) {
        const struct nvllm_param *row;
        for (size_t i = 0; (row = option_group_next(&options->groups[g], &i));) {
            if (num_flags + OPTION_SPELLINGS_MAX > FLAGS_MAX) break;
            num_flags += option_spellings(row, &flags[num_flags]);
        }
    }
    for (size_t i = 0; i < num_flags; i++) candidates[i] = flags[i];
    char name[OPTION_FLAG_BYTES_MAX];
    snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : sizeof name - 1), arg);
    const char *nearest = suggest_nearest(name, candidates, num_flags);
    if (nearest) {
        return err_set(err, ERR_INVALID, "unknown option %s; did you mean %s?", name, nearest);
    }
    return err_set(err, ERR_INVALID, "unknown option %s", name);
}

static enum status set_int(const struct nvllm_param *row, int32_t *field, const char *value,
                           struct err *err) {
    char *end = NULL;
    errno = 0;
    long number = strtol(value, &end, 10);
    if (end == value || *end || errno || (double)number < row->min || (double)number > row->max) {
        return err_set(err, ERR_INVALID, "\"%s\" is not an integer from %.0f to %.0f", value,
                       row->min, row->max);
    }
    *field = (int32_t)number;
    return OK;
}

static enum status set_double(const struct nvllm_param *row, double *field, const char *value,
                              struct err *err) {
    char *end = NULL;
    double number = strtod(value, &end);
    if (end == value || *end || !isfinite(number) || number < row->min || number > row->max) {
        return err_set(err, ERR_INVALID, "\"%s\" is not a number from %.10g to %.10g", value,
                       row->min, row->max);
    }
    *field = number;
    return OK;
}

static bool choice_allowed(const char *choices, const char *value) {
    size_t len = strlen(value);
    while (choices) {
        const char *bar = strchr(choices, '|');
        size_t choice_len = bar ? (size_t)(bar - choices) : strlen(choices);
        if (choice_len == len && memcmp(choices, value, len) == 0) return true;
        choices = bar ? bar + 1 : NULL;
    }
    return false;
}

// A command's own rows: the field is at the row's offset in `target`.
static enum status set_field(const struct nvllm_param *row, void *target, const char *value,
                             struct err *err) {
    void *field = (char *)target + row->offset;
    switch (row->type) {
    case NVLLM_PARAM_INT:
        return set_int(row, field, value, err);
    case NVLLM_PARAM_DOUBLE:
        return set_double(row, field, value, err);
    case NVLLM_PARAM_BOOL:
        *(int32_t *)field = strcmp(value, "true") == 0; // set_bool gives no other word than false
        return OK;
    case NVLLM_PARAM_STRING:
        if (row->choices && !choice_allowed(row->choices, value)) {
            return err_set(err, ERR_INVALID, "\"%s\" is not one of %s", value, row->choices);
        }
        *(const char **)field = value;
        return OK;
    default:
        return err_set(err, ERR_INVALID, "%s has no setter", row->name);
    }
}

// The library's error begins with the parameter's name; replaces it by the flag.
static enum status name_flag(const char *name, const char *flag, size_t flag_len,
                             enum status status, struct err *err) {
    if (!err || status == ERR_NOMEM) return status;
    char sentence[sizeof err->message];
    memcpy(sentence, err->message, sizeof sentence);
    const char *at = strstr(sentence, name);
    if (!at) return status;
    return err_set(err, status, "%.*s%.*s%s", (int)(at - sentence), sentence, (int)flag_len, flag,
                   at + strlen(name));
}

static enum status set_row(const struct flag_match *match, const char *value, struct err *err) {
    const struct option_group *group = match->group;
    if (!group->set) return set_field(match->row, group->target, value, err);
    return group->set(group->target, match->row->name, value, err);
}

static bool is_list(const struct nvllm_param *row) {
    return row->type == NVLLM_PARAM_STRINGS || row->type == NVLLM_PARAM_IDS ||
           row->type == NVLLM_PARAM_BIASES || row->type == NVLLM_PARAM_JSON;
}

// Appends the ids of "1,2,3" to a JSON list.
static enum status append_ids(json_t *list, const char *value, struct err *err) {
    const char *at = value;
    for (;;) {
        char *end = NULL;
        errno = 0;
        long long id = strtoll(at, &end, 10);
        if (end == at || errno || (*end && *end != ',')) {
            return err_set(err, ERR_INVALID, "\"%s\" is not a list of token ids like 1,2,3", value);
        }
        if (json_array_append_new(list, json_integer(id)) != 0) return err_nomem(err, "options");
        if (!*end) return OK;
        at = end + 1;
    }
}

// Adds the pairs of "17=-100,4=2.5" to a JSON map.
static enum status append_biases(json_t *map, const char *value, struct err *err) {
    const char *at = value;
    for (;;) {
        char *end = NULL, key[24];
        errno = 0;
        long long id = strtoll(at, &end, 10);
        const char *number = end + 1;
        bool ok = end != at && !errno && *end == '=';
        double bias = ok ? strtod(number, &end) : 0;
        bool ban = isinf(bias) && bias < 0; // JSON has no infinity; the library reads "-inf"
        if (!ok || end == number || (!isfinite(bias) && !ban) || (*end && *end != ',')) {
            return err_set(err, ERR_INVALID, "\"%s\" is not a list of biases like 17=-100,4=2.5",
                           value);
        }
        snprintf(key, sizeof key, "%lld", id);
        if (json_object_get(map, key)) {
            return err_set(err, ERR_INVALID, "token %s is given twice", key);
        }
        json_t *json = ban ? json_string("-inf") : json_real(bias);
        if (json_object_set_new(map, key, json) != 0) return err_nomem(err, "options");
        if (!*end) return OK;
        at = end + 1;
    }
}

// Adds a whole JSON list or map to the values so far.
static enum status collect_json(json_t *list, const char *value, struct err *err) {
    json_t *more = NULL;
    enum status status = jread_text(&more, value, strlen(value), "the value", err);
    if (status) return status == ERR_NOMEM ? status : ERR_INVALID;
    if (json_typeof(more) != json_typeof(list)) {
        status = err_set(err, ERR_INVALID, "the value is %s, want %s", jread_type_name(more),
                         jread_type_name(list));
    } else if (json_is_array(list) ? json_array_extend(list, more)
                                   : json_object_update(list, more)) {
        status = err_nomem(err, "options");
    }
    json_decref(more);
    return status;
}

// Keeps one more value of a list flag in `lists` (row name -> JSON) until all are known.
static enum status collect(json_t *lists, const struct nvllm_param *row, const char *value,
                           struct err *err) {
    json_t *list = json_object_get(lists, row->name);
    if (!list) {
        bool is_map = row->type == NVLLM_PARAM_BIASES || row->type == NVLLM_PARAM_JSON;
        list = is_map ? json_object() : json_array();
        if (json_object_set_new(lists, row->name, list) != 0) return err_nomem(err, "options");
    }
    if (row->type == NVLLM_PARAM_STRINGS) {
        errno = 0;
        json_t *string = json_string(value);
        if (!string && errno == ENOMEM) return err_nomem(err, "options");
        if (!string) return err_set(err, ERR_INVALID, "the text is not valid UTF-8");
        return json_array_append_new(list, string) ? err_nomem(err, "options") : OK;
    }
    if (value[0] == '[' || value[0] == '{') return collect_json(list, value, err);
    if (row->type == NVLLM_PARAM_JSON) {
        return err_set(err, ERR_INVALID, "the value is not a JSON object");
    }
    return row->type == NVLLM_PARAM_IDS ? append_ids(list, value, err)
                                        : append_biases(list, value, err);
}

// Sets each row once, with its whole list.
static enum status set_lists(const struct options *options, json_t *lists, struct err *err) {
    const char *name;
    json_t *list;
    json_object_foreach(lists, name, list) {
        struct flag_match match = find_flag(options, name, strlen(name), 0);
        CHECK(match.group, "list %s", name); // the row was found when its flag was read
        struct buf text = {0};
        enum status status = jwrite(&text, list, JSON_COMPACT, "options", err);
        if (!status) status = set_row(&match, text.data, err);
        buf_fini(&text);
        if (!status) continue;
        char flags[OPTION_SPELLINGS_MAX][OPTION_FLAG_BYTES_MAX];
        option_spellings(match.row, flags);
        return name_flag(name, flags[0], strlen(flags[0]), status, err);
    }
    return OK;
}

// A boolean flag: --x, --no-x, --x=true or --x=false.
static enum status set_bool(const struct flag_match *match, const char *given, struct err *err) {
    const char *value = match->negated ? "false" : "true";
    if (given) {
        if (match->negated || (strcmp(given, "true") != 0 && strcmp(given, "false") != 0)) {
            return err_set(err, ERR_INVALID, "it takes no value");
        }
        value = given;
    }
    return set_row(match, value, err);
}

// Adds TEXT of --prompt TEXT to the arguments.
static bool is_argument(const struct flag_match *match) {
    return !match->group->set && match->row->type == NVLLM_PARAM_STRINGS;
}

// Parses the flag at argv[*at] and moves *at to the last argument that it used.
static enum status parse_flag(struct options *options, int argc, char **argv, int *at,
                              json_t *lists, struct err *err) {
    char *arg = argv[*at], *equals = arg[1] == '-' ? strchr(arg, '=') : NULL;
    size_t len = equals ? (size_t)(equals - arg) : strlen(arg);
    struct flag_match match = {0};
    if (arg[1] == '-') match = find_flag(options, arg + 2, len - 2, 0);
    if (len == 2) match = find_flag(options, NULL, 0, arg[1]);
    if (!match.group) return unknown_flag(options, arg, len, err);
    char *value = equals ? equals + 1 : NULL;
    enum status status = OK;
    bool is_bool = match.row->type == NVLLM_PARAM_BOOL;
    if (!is_bool && !value) {
        if (*at + 1 >= argc) return err_set(err, ERR_INVALID, "%s needs a value", argv[*at]);
        value = argv[++*at];
    }
    if (is_bool) {
        status = set_bool(&match, value, err);
    } else if (is_argument(&match)) {
        argv[options->num_args++] = value;
    } else if (is_list(match.row)) {
        status = collect(lists, match.row, value, err);
    } else {
        status = set_row(&match, value, err);
    }
    if (!status) return OK;
    bool named = match.group->set && !is_list(match.row) && !is_bool;
    return named ? name_flag(match.row->name, arg, len, status, err)
                 : err_prefix(err, status, "%.*s", (int)len, arg);
}

static const struct {
    const char *name;
    void (*print)(const struct options *options, FILE *out);
} forms[] = {
    [OPTIONS_HELP] = {"text", options_print_help}, [OPTIONS_MAN] = {"man", options_print_man},
    [OPTIONS_BASH] = {"bash", options_print_bash}, [OPTIONS_ZSH] = {"zsh", options_print_zsh},
    [OPTIONS_FISH] = {"fish", options_print_fish},
};

const char *options_form_name(enum options_form form) {
    return forms[form].name;
}

void options_print(const struct options *options, FILE *out) {
    forms[options->form].print(options, out);
}

static bool asks_for_help(int argc, char **argv, enum options_form *form) {
    static const char with_form[] = "--help=";
    *form = OPTIONS_HELP;
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
        if (strncmp(argv[i], with_form, sizeof with_form - 1) != 0) continue;
        for (size_t k = 0; k < ARRAY_LEN(forms); k++) {
            bool is_it = strcmp(argv[i] + sizeof with_form - 1, forms[k].name) == 0;
            if (is_it) *form = (enum options_form)k;
        }
        return true;
    }
    return false;
}

enum status options_parse(struct options *options, int argc, char **argv, struct err *err) {
    options->args = argv;
    options->num_args = 0;
    options->help = asks_for_help(argc, argv, &options->form);
    if (options->help) return OK;
    json_t *lists = json_object();
    if (!lists) return err_nomem(err, "options");
    enum status status = OK;
    bool flags_ended = false;
    for (int i = 0; i < argc && !status; i++) {
        if (!flags_ended && strcmp(argv[i], "--") == 0) {
            flags_ended = true;
        } else if (!flags_ended && argv[i][0] == '-' && argv[i][1]) {
            status = parse_flag(options, argc, argv, &i, lists, err);
        } else {
            argv[options->num_args++] = argv[i];
        }
    }
    if (!status) status = set_lists(options, lists, err);
    json_decref(lists);
    return status;
}
