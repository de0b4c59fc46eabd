#include "reference/expected.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/safetensors.h"
#include "support/cmocka_all.h"

static const struct tensor *tensor(const struct safetensors *file, int seq, const char *name) {
    char key[64];
    snprintf(key, sizeof key, "seq%d.%s", seq, name);
    const struct tensor *t = safetensors_find(file, key);
    if (!t) fail_msg("%s is not in the expected values", key);
    return t;
}

static void compare(const float *got, const float *want, uint32_t vocab,
                    struct expected_difference *out) {
    for (uint32_t i = 0; i < vocab; i++) {
        out->largest = fmaxf(out->largest, fabsf(want[i]));
        out->worst = fmaxf(out->worst, fabsf(got[i] - want[i]));
        if (isnan(got[i])) fail_msg("%u tokens: logit %u is NaN", out->num_tokens, i);
    }
}

void expected_run_family(struct mini_engine *engine, const char *folder,
                         struct expected_difference out[EXPECTED_LENGTHS]) {
    char path[160];
    snprintf(path, sizeof path, "%s/expected.safetensors", folder);
    struct err err = {0};
    struct safetensors *expected = NULL;
    if (safetensors_open(&expected, path, &err)) fail_msg("%s", err.message);
    uint32_t vocab = engine->plan.config.vocab_size;
    float *logits = malloc(vocab * sizeof *logits);
    float *want = malloc(vocab * sizeof *want);
    int32_t ids[EXPECTED_TOKENS_MAX];
    assert_true(logits && want);
    for (int seq = 0; seq < EXPECTED_LENGTHS; seq++) {
        const struct tensor *input = tensor(expected, seq, "input_ids");
        const struct tensor *last = tensor(expected, seq, "last_logits");
        assert_true(input->size_bytes <= sizeof ids);
        assert_true(last->size_bytes == vocab * sizeof *want);
        assert_non_null(byte_source_get(&input->source, 0, input->size_bytes, ids, &err));
        assert_non_null(byte_source_get(&last->source, 0, last->size_bytes, want, &err));
        struct mini_request request = {
            .prompt = ids, .num_prompt = (uint32_t)input->shape[0], .max_new = 1, .logits = logits};
        mini_run(engine, &request, 1);
        out[seq] = (struct expected_difference){.num_tokens = request.num_prompt};
        compare(logits, want, vocab, &out[seq]);
    }
    free(logits);
    free(want);
    safetensors_close(expected);
}

uint32_t expected_read_ids(const json_t *list, int32_t out[EXPECTED_TOKENS_MAX]) {
    size_t count = json_array_size(list);
    assert_true(count > 0 && count <= EXPECTED_TOKENS_MAX);
    for (size_t i = 0; i < count; i++) {
        out[i] = (int32_t)json_integer_value(json_array_get(list, i));
    }
    return (uint32_t)count;
}
