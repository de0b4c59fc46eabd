/* Gemma 4 in a GGUF file's metadata: what is refused by its name, as another value would change the
 * computation in silence. */
#include <math.h>
#include <string.h>

#include "base/json/json_out.h"
#include "checkpoint/gguf/file/gguf_files.h"
#include "checkpoint/gguf/gguf_model.h"
#include "support/cmocka_all.h"
#include "support/gguf_builder.h"

enum { F32_TYPE = 0, WIDE = 8, PAIRS = WIDE / 2, VOCAB = 12, HIDDEN = 8 };

// Writes config.json of a small file into `out`; the caller frees it. `name` is that of the tensor
// with the divisors of frequencies.
static enum status write_config(float softcap, const char *name, struct json_out *out,
                                struct err *err) {
    static const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {
        {"gemma4.context_length", 64},
        {"gemma4.embedding_length", HIDDEN},
        {"gemma4.block_count", 2},
        {"gemma4.feed_forward_length", 16},
        {"gemma4.attention.head_count", 2},
        {"gemma4.attention.head_count_kv", 1},
        {"gemma4.attention.key_length", WIDE},
        {"gemma4.attention.key_length_swa", 4},
        {"gemma4.attention.value_length", WIDE},
        {"gemma4.attention.value_length_swa", 4},
        {"gemma4.rope.dimension_count", WIDE},
        {"gemma4.rope.dimension_count_swa", 4},
        {"gemma4.attention.sliding_window", 32},
        {"gemma4.attention.sliding_window_pattern", 2},
    };
    static const uint64_t embedding[] = {HIDDEN, VOCAB}, pairs[] = {PAIRS};
    static const float divisors[PAIRS] = {1, 1e30f, 1e30f, 1e30f};
    struct buf bytes = {0};
    struct gguf *gguf = NULL;
    struct gguf_files files;
    put_start(&bytes, 2, ARRAY_LEN(sizes) + 3);
    put_string_value(&bytes, "general.architecture", "gemma4");
    put_f32_value(&bytes, "gemma4.attention.layer_norm_rms_epsilon", 1e-5f);
    put_f32_value(&bytes, "gemma4.final_logit_softcapping", softcap);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        put_u32_value(&bytes, sizes[i].key, sizes[i].value);
    }
    put_tensor(&bytes, "token_embd.weight", 2, embedding, F32_TYPE, 0);
    put_tensor(&bytes, name, 1, pairs, F32_TYPE, HIDDEN * VOCAB * 4);
    put_data(&bytes, 32, HIDDEN * VOCAB * 4);
    put_bytes(&bytes, divisors, sizeof divisors);
    assert_int_equal(gguf_parse(&gguf, bytes.data, bytes.len, "m.gguf", err), OK);
    assert_int_equal(gguf_files_take(&files, gguf, err), OK);
    enum status status = gguf_write_config(&files, out, err);
    gguf_files_close(&files);
    buf_fini(&bytes);
    return status;
}

static void test_rotation(void **state) {
    (void)state;
    struct json_out out = {0};
    struct err err = {0};
    if (write_config(30, "rope_freqs.weight", &out, &err)) fail_msg("%s", err.message);
    json_out_rawf(&out, "%c", '\0');
    assert_non_null(strstr(out.buf.data, "\"proportional\", \"partial_rotary_factor\": 0.25"));
    json_out_clear(&out);
    assert_int_equal(write_config(30, "rope_frequencies.weight", &out, &err), ERR_FORMAT);
    assert_string_equal(err.message, "m.gguf has no tensor \"rope_freqs.weight\"");
    json_out_fini(&out);
}

static void test_limit_of_logits(void **state) {
    (void)state;
    static const struct {
        float softcap;
        const char *sentence;
    } cases[] = {{-30, "\"gemma4.final_logit_softcapping\" is -30, want 0 (no limit) or more"},
                 {NAN, "\"gemma4.final_logit_softcapping\" is not a finite number"},
                 {INFINITY, "\"gemma4.final_logit_softcapping\" is not a finite number"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct json_out out = {0};
        struct err err = {0};
        enum status status = write_config(cases[i].softcap, "rope_freqs.weight", &out, &err);
        if (status != ERR_FORMAT || !strstr(err.message, cases[i].sentence)) {
            fail_msg("status %d, \"%s\", want \"%s\"", status, err.message, cases[i].sentence);
        }
        json_out_fini(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_limit_of_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
