/* Every line has all keys, also that of a refused request, so that a reader needs no special case
 * but `error`. Log-probabilities become text as they arrive: of 20 alternatives they are most of a
 * result, and as text they are written without another pass. */
#include "cmd/result_line.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "cmd/json_text.h"

void result_fini(struct result *result) {
    free(result->prompt_ids);
    free(result->token_ids);
    free(result->stop_string);
    free(result->error);
    buf_fini(&result->text);
    buf_fini(&result->logprobs);
    *result = (struct result){0};
}

size_t result_bytes(const struct result *result) {
    return sizeof *result + (result->num_prompt_ids + result->num_tokens) * sizeof(int32_t) +
           result->text.capacity + result->logprobs.capacity;
}

static enum status add_logprob(struct buf *out, const char *format, const struct nvllm_logprob *p,
                               struct err *err) {
    enum status status = buf_append_str(out, format, err);
    if (!status) status = buf_appendf(out, err, "%d", p->token_id);
    return status;
}

enum status result_add_logprobs(struct result *result, const struct nvllm_logprob *chosen,
                                const struct nvllm_logprob *top, size_t num_top, struct err *err) {
    struct buf *out = &result->logprobs;
    enum status status =
        add_logprob(out, out->len ? ",{\"token_id\":" : "{\"token_id\":", chosen, err);
    if (!status) status = buf_append_str(out, ",\"logprob\":", err);
    if (!status) status = json_text_float(out, chosen->logprob, err);
    if (!status) status = buf_append_str(out, ",\"top\":[", err);
    for (size_t i = 0; i < num_top && !status; i++) {
        status = add_logprob(out, i ? ",[" : "[", &top[i], err);
        if (!status) status = buf_append_str(out, ",", err);
        if (!status) status = json_text_float(out, top[i].logprob, err);
        if (!status) status = buf_append_str(out, "]", err);
    }
    return status ? status : buf_append_str(out, "]}", err);
}

static enum status add_stop_reason(struct buf *out, const struct result *result, struct err *err) {
    enum status status = buf_append_str(out, ",\"stop_reason\":", err);
    if (status) return status;
    if (result->stop_string) {
        return json_text_string(out, result->stop_string, strlen(result->stop_string), err);
    }
    if (result->stop_token_id >= 0) return buf_appendf(out, err, "%d", result->stop_token_id);
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

enum status result_line_format(struct buf *out, const struct result *result, struct err *err) {
    enum status status = buf_appendf(
        out, err, "{\"index\":%llu,\"prompt_token_ids\":", (unsigned long long)result->index);
    if (!status) status = json_text_ids(out, result->prompt_ids, result->num_prompt_ids, err);
    if (!status) status = buf_append_str(out, ",\"token_ids\":", err);
    if (!status) status = json_text_ids(out, result->token_ids, result->num_tokens, err);
    if (!status) status = add_text(out, ",\"text\":", result->text.data, result->text.len, err);
    if (!status) {
        status = buf_appendf(out, err, ",\"finish_reason\":\"%s\"",
                             nvllm_finish_reason_name(result->finish_reason));
    }
    if (!status) status = add_stop_reason(out, result, err);
    if (!status) {
        status = buf_appendf(out, err, ",\"num_cached_tokens\":%u,\"logprobs\":%s",
                             result->num_cached_tokens, result->num_top >= 0 ? "[" : "null");
    }
    if (!status) status = buf_append(out, result->logprobs.data, result->logprobs.len, err);
    if (!status && result->num_top >= 0) status = buf_append_str(out, "]", err);
    if (!status && result->has_times) status = add_times(out, &result->times, err);
    if (!status && result->error) {
        status = add_text(out, ",\"error\":", result->error, strlen(result->error), err);
    }
    return status ? status : buf_append_str(out, "}\n", err);
}
