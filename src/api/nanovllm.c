/* The public C API on top of the engine: struct sizes, errors and ownership. It has no other
 * logic. */
#include "nanovllm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/convert.h"
#include "api/encode.h"
#include "api/model_find.h"
#include "api/parsed.h"
#include "api/step_tokens.h"
#include "base/compiler.h"
#include "base/os/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_folder.h"
#include "engine/data_parallel/engine_group.h"
#include "engine/params/params.h"
#include "engine/plan/engine_plan.h"
#include "text/tokenizer/tokenizer.h"

_Static_assert(sizeof(struct nvllm_error) == sizeof(struct err), "nvllm_error is err's layout");
_Static_assert((int)NVLLM_ERR_INTERRUPTED == (int)ERR_INTERRUPTED,
               "nvllm_status is status's values");

#define TEXT_OF(x) #x
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *nvllm_version(void) {
    return VERSION_TEXT(NVLLM_VERSION_MAJOR, NVLLM_VERSION_MINOR, NVLLM_VERSION_PATCH);
}

size_t nvllm_struct_size(const char *name) {
    static const struct {
        const char *name;
        size_t size;
    } structs[] = {
        {"nvllm_error", sizeof(struct nvllm_error)},
        {"nvllm_interrupt", sizeof(struct nvllm_interrupt)},
        {"nvllm_load_progress", sizeof(struct nvllm_load_progress)},
        {"nvllm_download", sizeof(struct nvllm_download)},
        {"nvllm_download_progress", sizeof(struct nvllm_download_progress)},
        {"nvllm_logit_bias", sizeof(struct nvllm_logit_bias)},
        {"nvllm_sampling_params", sizeof(struct nvllm_sampling_params)},
        {"nvllm_engine_options", sizeof(struct nvllm_engine_options)},
        {"nvllm_param", sizeof(struct nvllm_param)},
        {"nvllm_logprob", sizeof(struct nvllm_logprob)},
        {"nvllm_times", sizeof(struct nvllm_times)},
        {"nvllm_durations", sizeof(struct nvllm_durations)},
        {"nvllm_event", sizeof(struct nvllm_event)},
        {"nvllm_pooling", sizeof(struct nvllm_pooling)},
        {"nvllm_request", sizeof(struct nvllm_request)},
        {"nvllm_result", sizeof(struct nvllm_result)},
        {"nvllm_stats", sizeof(struct nvllm_stats)},
        {"nvllm_step_item", sizeof(struct nvllm_step_item)},
        {"nvllm_step_block", sizeof(struct nvllm_step_block)},
        {"nvllm_step_times", sizeof(struct nvllm_step_times)},
        {"nvllm_step_trace", sizeof(struct nvllm_step_trace)},
        {"nvllm_sequence", sizeof(struct nvllm_sequence)},
    };
    for (size_t i = 0; name && i < ARRAY_LEN(structs); i++) {
        if (strcmp(structs[i].name, name) == 0) return structs[i].size;
    }
    return 0;
}

enum nvllm_status api_error(struct nvllm_error *out, enum status status, const struct err *err) {
    if (out && status) {
        out->status = (enum nvllm_status)status;
        memcpy(out->message, err->message, sizeof out->message);
    }
    return (enum nvllm_status)status;
}

// Accepts the sizes of released headers; so far there is one. A shorter size will mean an older
// program, whose missing fields take their defaults. Any other size is an error.
enum status api_check_size(const void *given, size_t known_size, const char *what,
                           struct err *err) {
    if (!given) return err_set(err, ERR_INVALID, "no %s given", what);
    size_t size;
    memcpy(&size, given, sizeof size);
    if (size == known_size) return OK;
    return err_set(err, ERR_INVALID,
                   "%s: struct_size is %zu, want %zu (was it set by its _INIT macro?)", what, size,
                   known_size);
}

enum status api_check_request(const struct nvllm_request *request, struct err *err) {
    enum status status = api_check_size(request, sizeof *request, "nvllm_request", err);
    if (!status && request->pooling) {
        status = api_check_size(request->pooling, sizeof *request->pooling, "nvllm_pooling", err);
    }
    if (status || !request->sampling) return status;
    return api_check_size(request->sampling, sizeof *request->sampling, "nvllm_sampling_params",
                          err);
}

const struct nvllm_param *nvllm_sampling_param(size_t index) {
    return params_sampling(index);
}

const struct nvllm_param *nvllm_engine_option(size_t index) {
    return params_engine_option(index);
}

const char *nvllm_sampling_param_default(size_t index) {
    return params_sampling_default(index);
}

const char *nvllm_engine_option_default(size_t index) {
    return params_engine_option_default(index);
}

enum nvllm_status nvllm_sampling_params_set(struct nvllm_sampling_params *params, const char *name,
                                            const char *value, struct nvllm_error *error) {
    struct err err = {0};
    enum status status = api_check_size(params, sizeof *params, "nvllm_sampling_params", &err);
    if (!status) status = params_set_sampling(params, name, value, &err);
    return api_error(error, status, &err);
}

enum nvllm_status api_sampling_params_set(struct nvllm_sampling_params *params, const char *name,
                                          const json_t *value, struct nvllm_error *error) {
    struct err err = {0};
    return api_error(error, params_set_sampling_json(params, name, value, &err), &err);
}

void nvllm_sampling_params_fini(struct nvllm_sampling_params *params) {
    if (!api_check_size(params, sizeof *params, "nvllm_sampling_params", NULL)) {
        params_fini_sampling(params);
    }
}

enum nvllm_status nvllm_engine_options_set(struct nvllm_engine_options *options, const char *name,
                                           const char *value, struct nvllm_error *error) {
    struct err err = {0};
    enum status status = api_check_size(options, sizeof *options, "nvllm_engine_options", &err);
    if (!status) status = params_set_engine_option(options, name, value, &err);
    return api_error(error, status, &err);
}

static const struct tokenizer *tokenizer_of(const struct nvllm_tokenizer *handle) {
    return (const struct tokenizer *)handle;
}

enum nvllm_status nvllm_tokenizer_open(struct nvllm_tokenizer **out, const char *model,
                                       struct nvllm_error *error) {
    struct err err = {0};
    char path[FILE_PATH_MAX];
    *out = NULL;
    enum status status = model ? OK : err_set(&err, ERR_INVALID, "no model given");
    if (!status) status = api_model_find_texts(path, model, &err);
    model = path;
    struct checkpoint *checkpoint = NULL;
    struct tokenizer *tokenizer = NULL;
    bool is_folder = !status && file_is_folder(model), is_file = false;
    if (!status && !is_folder) status = file_is_present(model, &is_file, &err);
    if (!status && is_file && !model_folder_is_other_format(model) && !checkpoint_is_file(model)) {
        status = tokenizer_open_file(&tokenizer, model, &err);
    } else if (!status) {
        status = checkpoint_open(&checkpoint, model, &err);
        if (!status) status = tokenizer_open(&tokenizer, checkpoint, &err);
    }
    checkpoint_close(checkpoint);
    *out = (struct nvllm_tokenizer *)tokenizer;
    return api_error(error, status, &err);
}

void nvllm_tokenizer_close(struct nvllm_tokenizer *tokenizer) {
    tokenizer_close((struct tokenizer *)tokenizer);
}

enum nvllm_status nvllm_tokenizer_encode(const struct nvllm_tokenizer *tokenizer, const char *text,
                                         size_t text_len, int add_special_tokens,
                                         const struct nvllm_interrupt *interrupt, int32_t **ids,
                                         size_t *num_ids, struct nvllm_error *error) {
    *num_ids = 0; // any number
    return api_encode(tokenizer, text, text_len, add_special_tokens, interrupt, ids, num_ids,
                      error);
}

enum nvllm_status api_encode(const struct nvllm_tokenizer *tokenizer, const char *text,
                             size_t text_len, int add_special_tokens,
                             const struct nvllm_interrupt *interrupt, int32_t **ids,
                             size_t *num_ids, struct nvllm_error *error) {
    struct err err = {0};
    struct token_list list = {.len_max = *num_ids};
    const struct interrupt asked = llm_engine_interrupt(interrupt);
    enum status status = tokenizer_encode(tokenizer_of(tokenizer), text, text_len,
                                          add_special_tokens != 0, &asked, &list, &err);
    if (!status && !list.ids) { // never NULL on success, even without tokens
        list.ids = malloc(sizeof *list.ids);
        if (!list.ids) status = err_nomem(&err, "token ids");
    }
    if (status) token_list_fini(&list);
    *ids = list.ids;
    *num_ids = list.len;
    return api_error(error, status, &err);
}

bool api_tokenizer_has_added(const struct nvllm_tokenizer *tokenizer, const char *text,
                             uint32_t vocab_size) {
    int32_t id;
    return tokenizer_find(tokenizer_of(tokenizer), text, strlen(text), &id) &&
           (uint32_t)id < vocab_size && tokenizer_token_is_added(tokenizer_of(tokenizer), id);
}

// Copies the ids that have a token to *out, which is the caller's; *num_ids becomes their number.
static enum status copy_known_ids(int32_t **out, size_t *num_ids, const struct tokenizer *tokenizer,
                                  const int32_t *ids, struct err *err) {
    int32_t *known = malloc((*num_ids ? *num_ids : 1) * sizeof *known);
    if (!known) return err_nomem(err, "token ids");
    size_t num_known = 0;
    for (size_t i = 0; i < *num_ids; i++) {
        size_t len;
        if (tokenizer_token_bytes(tokenizer, ids[i], &len)) known[num_known++] = ids[i];
    }
    *out = known;
    *num_ids = num_known;
    return OK;
}

enum nvllm_status nvllm_tokenizer_decode(const struct nvllm_tokenizer *tokenizer,
                                         const int32_t *ids, size_t num_ids, int flags, char **text,
                                         size_t *text_len, struct nvllm_error *error) {
    struct err err = {0};
    struct buf out = {0};
    int32_t *known = NULL; // [num_ids]
    enum status status = buf_reserve(&out, 0, &err);
    if (!status && flags & NVLLM_DECODE_SKIP_UNKNOWN) {
        status = copy_known_ids(&known, &num_ids, tokenizer_of(tokenizer), ids, &err);
        ids = known;
    }
    if (!status) {
        bool skip_special = flags & NVLLM_DECODE_SKIP_SPECIAL;
        status = tokenizer_decode(tokenizer_of(tokenizer), ids, num_ids, skip_special, &out, &err);
    }
    free(known);
    if (status) buf_fini(&out);
    *text = out.data;
    *text_len = out.len;
    return api_error(error, status, &err);
}

void nvllm_free(void *p) {
    free(p);
}

const char *nvllm_finish_reason_name(enum nvllm_finish_reason reason) {
    switch (reason) {
    case NVLLM_FINISH_NONE:
        return "none";
    case NVLLM_FINISH_STOP:
        return "stop";
    case NVLLM_FINISH_LENGTH:
        return "length";
    case NVLLM_FINISH_ABORT:
        return "abort";
    case NVLLM_FINISH_ERROR:
        return "error";
    }
    return "unknown";
}

static struct engine_group *group_of(struct nvllm_engine *handle) {
    return (struct engine_group *)handle;
}

static const struct llm_engine *first_of(const struct nvllm_engine *handle) {
    return engine_group_first((const struct engine_group *)handle);
}

// Replaces an optional string that is NULL by its default.
static void fill_strings(struct nvllm_engine_options *options) {
    const struct nvllm_engine_options defaults = NVLLM_ENGINE_OPTIONS_INIT;
    const struct nvllm_param *param;
    for (size_t i = 0; (param = params_engine_option(i)); i++) {
        if (param->type != NVLLM_PARAM_STRING) continue;
        const char **field = (const char **)((char *)options + param->offset);
        if (!*field) *field = *(const char *const *)((const char *)&defaults + param->offset);
    }
}

// Fills in the defaults and checks all options.
static enum status read_options(struct nvllm_engine_options *out,
                                const struct nvllm_engine_options *given, struct err *err) {
    enum status status = api_check_size(given, sizeof *given, "nvllm_engine_options", err);
    if (status) return status;
    *out = *given;
    fill_strings(out);
    return params_check_engine_options(out, err);
}

enum nvllm_status nvllm_engine_create(struct nvllm_engine **out,
                                      const struct nvllm_engine_options *options,
                                      struct nvllm_error *error) {
    struct err err = {0};
    struct nvllm_engine_options full;
    struct engine_group *group = NULL;
    char path[FILE_PATH_MAX];
    enum status status = read_options(&full, options, &err);
    if (!status) status = api_model_place(&full, path, HUB_WANT_MODEL, &err);
    if (!status) status = engine_group_create(&group, &full, &err);
    *out = (struct nvllm_engine *)group;
    return api_error(error, status, &err);
}

void nvllm_engine_destroy(struct nvllm_engine *engine) {
    engine_group_destroy(group_of(engine));
}

static enum nvllm_status add_request(struct nvllm_engine *engine,
                                     const struct nvllm_request *request, bool is_rendered,
                                     uint64_t *request_id, struct nvllm_error *error) {
    struct err err = {0};
    uint64_t id = 0;
    enum status status = api_check_request(request, &err);
    if (!status)
        status = engine_group_add_request(group_of(engine), request, is_rendered, &id, &err);
    if (request_id) *request_id = id;
    return api_error(error, status, &err);
}

enum nvllm_status nvllm_engine_add_request(struct nvllm_engine *engine,
                                           const struct nvllm_request *request,
                                           uint64_t *request_id, struct nvllm_error *error) {
    return add_request(engine, request, false, request_id, error);
}

enum nvllm_status api_add_rendered(struct nvllm_engine *engine, const struct nvllm_request *request,
                                   uint64_t *request_id, struct nvllm_error *error) {
    return add_request(engine, request, true, request_id, error);
}

enum nvllm_status nvllm_engine_step(struct nvllm_engine *engine, struct nvllm_error *error) {
    struct err err = {0};
    enum status status = engine_group_enter(group_of(engine), &err);
    if (status) return api_error(error, status, &err);
    status = engine_group_step(group_of(engine), &err);
    engine_group_leave(group_of(engine));
    return api_error(error, status, &err);
}

enum nvllm_status nvllm_engine_wait(struct nvllm_engine *engine, double seconds,
                                    struct nvllm_error *error) {
    struct err err = {0};
    enum status status = engine_group_enter(group_of(engine), &err);
    if (status) return api_error(error, status, &err);
    status = engine_group_wait(group_of(engine), seconds, &err);
    engine_group_leave(group_of(engine));
    return api_error(error, status, &err);
}

enum nvllm_status nvllm_engine_observe(struct nvllm_engine *engine, nvllm_step_fn on_step,
                                       void *user_data, struct nvllm_error *error) {
    struct err err = {0};
    enum status status = engine_group_enter(group_of(engine), &err);
    if (status) return api_error(error, status, &err);
    status = engine_group_observe(group_of(engine), on_step, user_data, &err);
    engine_group_leave(group_of(engine));
    return api_error(error, status, &err);
}

enum nvllm_status nvllm_engine_check_open(struct nvllm_engine *engine, struct nvllm_error *error) {
    struct err err = {0};
    return api_error(error, engine_group_check_open(group_of(engine), &err), &err);
}

size_t nvllm_engine_sequences(const struct nvllm_engine *engine, struct nvllm_sequence *out,
                              size_t max) {
    return engine_group_sequences((const struct engine_group *)engine, out, max);
}

void nvllm_engine_drain(struct nvllm_engine *engine) {
    engine_group_drain(group_of(engine));
}

void nvllm_engine_wake(struct nvllm_engine *engine) {
    engine_group_wake(group_of(engine));
}

int nvllm_engine_has_unfinished(struct nvllm_engine *engine) {
    return (int)engine_group_num_unfinished(group_of(engine));
}

int nvllm_engine_is_unfinished(struct nvllm_engine *engine, uint64_t request_id) {
    return engine_group_is_unfinished(group_of(engine), request_id);
}

int nvllm_engine_abort(struct nvllm_engine *engine, uint64_t request_id) {
    return engine_group_abort(group_of(engine), request_id);
}

const struct nvllm_tokenizer *nvllm_engine_tokenizer(const struct nvllm_engine *engine) {
    return (const struct nvllm_tokenizer *)llm_engine_tokenizer(first_of(engine));
}

void nvllm_engine_default_sampling(const struct nvllm_engine *engine,
                                   struct nvllm_sampling_params *params) {
    if (params->struct_size != sizeof *params) return;
    llm_engine_default_sampling(first_of(engine), params);
}

const struct nvllm_chat_template *nvllm_engine_chat_template(const struct nvllm_engine *engine,
                                                             struct nvllm_error *error) {
    struct err err = {0};
    const struct chat_template *chat_template = NULL;
    api_error(error, llm_engine_chat_template(first_of(engine), &chat_template, &err), &err);
    return (const struct nvllm_chat_template *)chat_template;
}

void nvllm_engine_stats(struct nvllm_engine *engine, struct nvllm_stats *stats) {
    if (stats->struct_size == sizeof *stats) engine_group_stats(group_of(engine), stats);
}

uint64_t api_num_step_tokens(struct nvllm_engine *engine) {
    return engine_group_num_step_tokens(group_of(engine));
}

enum nvllm_status nvllm_inspect(const struct nvllm_engine_options *options, char **json,
                                struct nvllm_error *error) {
    struct err err = {0};
    struct nvllm_engine_options full;
    struct engine_plan plan = {0};
    char path[FILE_PATH_MAX];
    *json = NULL;
    enum status status = read_options(&full, options, &err);
    if (!status) status = api_model_place(&full, path, HUB_WANT_TEXTS, &err);
    if (!status) status = engine_plan_make(&plan, &full, 0, 0, &err);
    if (!status) status = engine_plan_json(&plan, json, &err);
    engine_plan_fini(&plan);
    return api_error(error, status, &err);
}
