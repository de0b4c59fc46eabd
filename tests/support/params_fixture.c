#include "support/params_fixture.h"

#include <string.h>

#include "base/json/jread.h"
#include "base/json/jwrite.h"
#include "support/cmocka_all.h"

const struct nvllm_sampling_params params_defaults = NVLLM_SAMPLING_PARAMS_INIT;

// A value that came parsed is taken, or refused with the same sentence, as when it is written as
// text again.
static void set_parsed(const char *name, const char *value, enum status want) {
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT, same = params;
    struct err err = {0}, text_err = {0};
    struct buf text = {0};
    json_t *json = NULL;
    if (!name || !value || jread_request(&json, value, strlen(value), "value", NULL)) return;
    assert_int_equal(jwrite(&text, json, JSON_ENCODE_ANY | JSON_COMPACT, "value", NULL), OK);
    assert_int_equal(params_set_sampling_json(&params, name, json, &err), want);
    assert_int_equal(params_set_sampling(&same, name, text.data, &text_err), want);
    assert_string_equal(err.message, text_err.message);
    json_decref(json);
    buf_fini(&text);
    params_fini_sampling(&params);
    params_fini_sampling(&same);
}

void set_ok(struct nvllm_sampling_params *params, const char *name, const char *value) {
    struct err err = {0};
    if (params_set_sampling(params, name, value, &err) != OK) {
        fail_msg("%s = %s: %s", name, value, err.message);
    }
    set_parsed(name, value, OK);
}

size_t param_size(enum nvllm_param_type type) {
    if (type == NVLLM_PARAM_INT64 || type == NVLLM_PARAM_DOUBLE) return 8;
    if (type == NVLLM_PARAM_INT || type == NVLLM_PARAM_FLOAT || type == NVLLM_PARAM_BOOL) return 4;
    return sizeof(void *);
}

// Field by field: the padding between them may be anything.
void assert_defaults(const struct nvllm_sampling_params *params) {
    const struct nvllm_param *param;
    for (size_t i = 0; (param = params_sampling(i)); i++) {
        const char *field = (const char *)params + param->offset;
        const char *want = (const char *)&params_defaults + param->offset;
        if (memcmp(field, want, param_size(param->type)) != 0) fail_msg("%s", param->name);
    }
    assert_int_equal(params->struct_size, params_defaults.struct_size);
    assert_int_equal(params->num_stop_token_ids + params->num_stop + params->num_logit_bias +
                         params->num_allowed_token_ids + params->num_bad_words,
                     0);
    assert_null(params->owned);
}

void set_refused(const char *name, const char *value, const char *sentence) {
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    struct err err = {0};
    assert_int_equal(params_set_sampling(&params, name, value, &err), ERR_INVALID);
    assert_string_equal(err.message, sentence);
    assert_defaults(&params);
    set_parsed(name, value, ERR_INVALID);
}
