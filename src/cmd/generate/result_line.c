/* Every line has all keys, also that of a refused request, so that a reader needs no special case
 * but `error`. Log-probabilities become text as they arrive: of 20 alternatives they are most of a
 * result, and as text they are written without another pass. */
#include "cmd/generate/result_line.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/json_text.h"

enum status result_add_others(struct result *result, size_t num_outputs, struct err *err) {
    size_t num_others = num_outputs - 1;
    if (!num_others) return OK;
    result->others = calloc(num_others, sizeof *result->others);
    if (!result->others) return err_nomem(err, "result");
    result->num_others = num_others;
    for (size_t i = 0; i < num_others; i++) result->others[i].stop_token_id = -1;
    return OK;
}

struct completion *result_completion(struct result *result, size_t index) {
    return index ? &result->others[index - 1] : &result->first;
}

static void completion_fini(struct completion *completion) {
    free(completion->token_ids);
    free(completion->stop_string);
    buf_fini(&completion->text);
    buf_fini(&completion->logprobs);
}

void result_fini(struct result *result) {
    free(result->prompt_ids);
    free(result->error);
    completion_fini(&result->first);
    for (size_t i = 0; i < result->num_others; i++) completion_fini(&result->others[i]);
    free(result->others);
    buf_fini(&result->prompt_logprobs);
    *result = (struct result){0};
}

static size_t completion_bytes(const struct completion *completion) {
    return sizeof *completion + completion->num_tokens * sizeof(int32_t) +
           completion->text.capacity + completion->logprobs.capacity;
}

size_t result_bytes(const struct result *result) {
    size_t bytes = sizeof *result + result->num_prompt_ids * sizeof(int32_t) +
                   completion_bytes(&result->first) + result->prompt_logprobs.capacity;
    for (size_t i = 0; i < result->num_others; i++) bytes += completion_bytes(&result->others[i]);
    return bytes;
}

static enum status add_logprob(struct buf *out, const char *format, const struct nvllm_logprob *p,
                               struct err *err) {
    enum status status = buf_append_str(out, format, err);
    if (!status) status = buf_appendf(out, err, "%d", p->token_id);
    return status;
}

// One element of a list of log-probabilities.
static enum status add_element(struct buf *out, const struct nvllm_logprob *row, size_t num_top,
                               struct err *err) {
    const struct nvllm_logprob *top = row + 1;
    enum status status =
        add_logprob(out, out->len ? ",{\"token_id\":" : "{\"token_id\":", row, err);
    if (!status) status = buf_append_str(out, ",\"logprob\":", err);
    if (!status) status = json_text_float(out, row->logprob, err);
    if (!status) status = buf_append_str(out, ",\"top\":[", err);
    for (size_t i = 0; i < num_top && top[i].token_id >= 0 && !status; i++) {
        status = add_logprob(out, i ? ",[" : "[", &top[i], err);
        if (!status) status = buf_append_str(out, ",", err);
        if (!status) status = json_text_float(out, top[i].logprob, err);
        if (!status) status = buf_append_str(out, "]", err);
    }
    return status ? status : buf_append_str(out, "]}", err);
}

enum status result_add_logprobs(struct completion *completion, const struct nvllm_logprob *row,
                                size_t num_top, struct err *err) {
    return add_element(&completion->logprobs, row, num_top, err);
}

enum status result_add_prompt_logprobs(struct result *result, const struct nvllm_logprob *rows,
                                       size_t num_top, size_t num_prompt_tokens, struct err *err) {
    struct buf *out = &result->prompt_logprobs;
    enum status status = buf_append_str(out, "null", err); // nothing predicts the first token
    for (size_t i = 0; i + 1 < num_prompt_tokens && !status; i++) {
        status = add_element(out, rows + i * (1 + num_top), num_top, err);
    }
    return status;
}

static enum status add_stop_reason(struct buf *out, const struct completion *completion,
                                   struct err *err) {
    const char *stop = completion->stop_string;
    enum status status = buf_append_str(out, ",\"stop_reason\":", err);
    if (status) return status;
    if (stop) return json_text_string(out, stop, strlen(stop), err);
    if (completion->stop_token_id >= 0) {
        return buf_appendf(out, err, "%d", completion->stop_token_id);
    }
    return buf_append_str(out, "null", err);
}

static enum status add_text(struct buf *out, const char *key, const char *text, size_t len,
                            struct err *err) {
    enum status status = buf_append_str(out, key, err);
    return status ? status : json_text_string(out, text, len, err);
}

// Seconds after its arrival; null for what did not come.
static enum status add_times(struct buf *out, const struct nvllm_times *times, struct err *err) {
    const struct {
        const char *key;
        double time;
    } fields[] = {{",\"times\":{\"first_scheduled\":", times->first_scheduled},
                  {",\"first_token\":", times->first_token},
                  {",\"last_token\":", times->last_token}};
    enum status status = OK;
    for (size_t i = 0; i < ARRAY_LEN(fields) && !status; i++) {
        status = buf_append_str(out, fields[i].key, err);
        if (status) return status;
        bool came = fields[i].time > 0;
        status = came ? buf_appendf(out, err, "%.6f", fields[i].time - times->arrival)
                      : buf_append_str(out, "null", err);
    }
    return status ? status : buf_append_str(out, "}", err);
}

// From token_ids to stop_reason.
static enum status add_end(struct buf *out, const struct completion *completion, struct err *err) {
    const struct buf *text = &completion->text;
    enum status status = buf_append_str(out, ",\"token_ids\":", err);
    if (!status) status = json_text_ids(out, completion->token_ids, completion->num_tokens, err);
    if (!status) status = add_text(out, ",\"text\":", text->data, text->len, err);
    if (!status) {
        status = buf_appendf(out, err, ",\"finish_reason\":\"%s\"",
                             nvllm_finish_reason_name(completion->finish_reason));
    }
    return status ? status : add_stop_reason(out, completion, err);
}

// `elements`: NULL for a list that is not there.
static enum status add_list(struct buf *out, const char *key, const struct buf *elements,
                            struct err *err) {
    enum status status = buf_appendf(out, err, ",\"%s\":%s", key, elements ? "[" : "null");
    if (status || !elements) return status;
    status = buf_append(out, elements->data, elements->len, err);
    return status ? status : buf_append_str(out, "]", err);
}

static enum status add_logprobs(struct buf *out, const struct result *result,
                                const struct completion *completion, struct err *err) {
    return add_list(out, "logprobs", result->num_top < 0 ? NULL : &completion->logprobs, err);
}

static enum status add_output(struct buf *out, const struct result *result, size_t index,
                              const struct completion *completion, struct err *err) {
    enum status status = buf_appendf(out, err, "%s{\"index\":%zu", index ? "," : "", index);
    if (!status) status = add_end(out, completion, err);
    if (!status) status = add_logprobs(out, result, completion, err);
    if (!status && result->has_times) status = add_times(out, &completion->times, err);
    return status ? status : buf_append_str(out, "}", err);
}

static enum status add_outputs(struct buf *out, const struct result *result, struct err *err) {
    enum status status = buf_append_str(out, ",\"outputs\":[", err);
    if (!status) status = add_output(out, result, 0, &result->first, err);
    for (size_t i = 0; i < result->num_others && !status; i++) {
        status = add_output(out, result, i + 1, &result->others[i], err);
    }
    return status ? status : buf_append_str(out, "]", err);
}

enum status result_line_format(struct buf *out, const struct result *result, struct err *err) {
    enum status status = buf_appendf(
        out, err, "{\"index\":%llu,\"prompt_token_ids\":", (unsigned long long)result->index);
    if (!status) status = json_text_ids(out, result->prompt_ids, result->num_prompt_ids, err);
    if (!status) status = add_end(out, &result->first, err);
    if (!status) {
        status = buf_appendf(out, err, ",\"num_cached_tokens\":%u", result->num_cached_tokens);
    }
    if (!status) status = add_logprobs(out, result, &result->first, err);
    if (!status && result->has_prompt_logprobs) {
        const struct buf *elements = &result->prompt_logprobs;
        status = add_list(out, "prompt_logprobs", elements->len ? elements : NULL, err);
    }
    if (!status && result->has_times) status = add_times(out, &result->first.times, err);
    if (!status && result->num_others) status = add_outputs(out, result, err);
    if (!status && result->error) {
        status = add_text(out, ",\"error\":", result->error, strlen(result->error), err);
    }
    return status ? status : buf_append_str(out, "}\n", err);
}

enum status vector_line_format(struct buf *out, const struct result *result, struct err *err) {
    const struct buf *vector = &result->first.text;
    enum status status =
        buf_appendf(out, err, "{\"index\":%llu,\"embedding\":", (unsigned long long)result->index);
    if (!status && vector->len) status = buf_append(out, vector->data, vector->len, err);
    if (!status && !vector->len) status = buf_append_str(out, "null", err);
    if (!status) {
        status = buf_appendf(out, err, ",\"num_prompt_tokens\":%zu,\"num_cached_tokens\":%u",
                             result->num_prompt_ids, result->num_cached_tokens);
    }
    if (!status && result->error) {
        status = buf_append_str(out, ",\"error\":", err);
        if (!status) status = json_text_string(out, result->error, strlen(result->error), err);
    }
    return status ? status : buf_append_str(out, "}\n", err);
}
