// Requests whose tokens are masked: the same ids and log-probabilities to the bit alone, together,
// in chunks, preempted, with steps that overlap, and on a device with recorded steps; and the mask
// holds. Masks that depend on the last token's id are made while the step runs that needs them.
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"
#include "support/ways.h"

enum { EOS = 4091, WORDS_MAX = 3, WORD_BYTES = 64 };

// What a request must not say: the texts of two tokens that it said one behind the other.
struct word {
    char text[WORD_BYTES];
    const char *list[1];
    int32_t ids[2];
};

struct masked {
    struct mixed_workload_expected expected; // first: it is the groups' state
    struct word words[WORKLOAD_REQUESTS];
    struct nvllm_result *plain; // [WORKLOAD_REQUESTS] without masks
    int32_t allowed[300];
};

static bool says(const struct nvllm_result *result, const int32_t ids[2]) {
    for (size_t i = 0; i + 1 < result->num_tokens; i++) {
        if (result->token_ids[i] == ids[0] && result->token_ids[i + 1] == ids[1]) return true;
    }
    return false;
}

// Two neighbours of the output whose texts together are these two tokens again.
static bool find_word(struct word *word, const struct nvllm_tokenizer *tokenizer,
                      const struct nvllm_result *result) {
    for (size_t i = 2; i + 1 < result->num_tokens; i++) {
        char *text = NULL;
        int32_t *ids = NULL;
        size_t len, num_ids = 0;
        const int32_t *pair = result->token_ids + i;
        assert_int_equal(nvllm_tokenizer_decode(tokenizer, pair, 2, 0, &text, &len, NULL),
                         NVLLM_OK);
        assert_int_equal(
            nvllm_tokenizer_encode(tokenizer, text, len, 0, NULL, &ids, &num_ids, NULL), NVLLM_OK);
        bool fits = num_ids == 2 && memcmp(ids, pair, 2 * sizeof *ids) == 0 && len < WORD_BYTES &&
                    strlen(text) == len && text[0] != ' ' && text[0] != '\n';
        if (fits) {
            memcpy(word->text, text, len + 1);
            memcpy(word->ids, pair, sizeof word->ids);
            word->list[0] = word->text;
        }
        nvllm_free(text);
        nvllm_free(ids);
        if (fits) return true;
    }
    return false;
}

static int make_expected(void **state) {
    struct masked *masked = calloc(1, sizeof *masked);
    assert_non_null(masked);
    struct mixed_workload *workload = masked->expected.workload = mixed_workload_create();
    struct nvllm_stats stats;
    masked->plain = way_run_alone(workload, &stats);
    struct nvllm_tokenizer *tokenizer = NULL;
    assert_int_equal(nvllm_tokenizer_open(&tokenizer, "models/tiny-qwen3", NULL), NVLLM_OK);
    for (int i = 0; i < 300; i++) masked->allowed[i] = 200 + 13 * i;
    for (int i = 0; i < WORKLOAD_REQUESTS; i++) {
        struct nvllm_sampling_params *params = &workload->params[i];
        if (i % 4 == 0 && find_word(&masked->words[i], tokenizer, &masked->plain[i])) {
            params->bad_words = masked->words[i].list;
            params->num_bad_words = 1;
        }
        if (i % 4 == 1) params->min_tokens = (int32_t)masked->plain[i].num_tokens;
        if (i % 4 == 1 && params->min_tokens == params->max_tokens) params->min_tokens--;
        if (i % 4 == 2) {
            params->allowed_token_ids = masked->allowed;
            params->num_allowed_token_ids = ARRAY_LEN(masked->allowed);
        }
    }
    nvllm_tokenizer_close(tokenizer);
    masked->expected.results = way_run_alone(workload, &masked->expected.stats);
    *state = masked;
    return 0;
}

static int free_expected(void **state) {
    struct masked *masked = *state;
    nvllm_results_free(masked->plain, WORKLOAD_REQUESTS);
    return mixed_workload_expected_free(state);
}

// Without this, the other tests could pass though no mask did anything.
static void test_the_masks_hold(void **state) {
    const struct masked *masked = *state;
    int num_words = 0, num_ended_later = 0;
    for (int i = 0; i < WORKLOAD_REQUESTS; i++) {
        const struct nvllm_sampling_params *params = &masked->expected.workload->params[i];
        const struct nvllm_result *plain = &masked->plain[i], *got = &masked->expected.results[i];
        if (params->num_bad_words) {
            num_words++;
            assert_true(says(plain, masked->words[i].ids));
            assert_false(says(got, masked->words[i].ids));
        }
        for (int32_t t = 0; t < params->min_tokens; t++) {
            assert_int_not_equal(got->token_ids[t], EOS);
        }
        if (params->min_tokens) num_ended_later += got->num_tokens > plain->num_tokens;
        for (size_t t = 0; params->num_allowed_token_ids && t < got->num_tokens; t++) {
            assert_int_equal((got->token_ids[t] - 200) % 13, 0);
        }
    }
    assert_true(num_words >= 3);
    assert_true(num_ended_later >= 1);
}

static void test_every_way_is_the_same(void **state) {
    static const struct way ways[] = {
        {.device = "cpu", .async_scheduling = "off", .max_num_seqs = 14},
        {.device = "cpu", .async_scheduling = "on", .max_num_seqs = 1},
        {.device = "cpu", .async_scheduling = "on", .max_num_seqs = 14},
        {.device = "cpu", .async_scheduling = "on", .max_num_seqs = 8, .max_num_tokens = 24},
        {.device = "cpu", .async_scheduling = "on", .max_num_seqs = 8, .num_blocks = 12},
        {.device = "cpu", .schedule = "prefill-first", .max_num_seqs = 8, .num_blocks = 14},
        {.device = "cuda", .async_scheduling = "on", .max_num_seqs = 14},
        {.device = "cuda", .async_scheduling = "off", .max_num_seqs = 5},
        {.device = "cuda", .async_scheduling = "on", .max_num_seqs = 8, .num_blocks = 12},
    };
    // Ranks share each step alike, however it came to be: one of the ways by day.
    bool is_one = getenv("NANOVLLM_TEST_RANKS") && !getenv("NANOVLLM_TEST_ALL");
    ways_expect_same(*state, is_one ? &ways[4] : ways, is_one ? 1 : ARRAY_LEN(ways));
}

// The number of steps of two requests, steps overlapping. One has a bad word of several tokens.
static uint64_t num_steps(const char *device, bool has_bad_word) {
    static const char *const words[] = {"Once upon a time there was nobody"};
    struct nvllm_engine_options options = small_options();
    options.device = device;
    options.async_scheduling = "on";
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params[2];
    struct nvllm_request requests[2];
    for (int i = 0; i < 2; i++) {
        params[i] = (struct nvllm_sampling_params)NVLLM_SAMPLING_PARAMS_INIT;
        params[i].temperature = 0;
        params[i].max_tokens = 24;
        params[i].ignore_eos = 1;
        requests[i] = text_request(QUESTION, &params[i]);
    }
    params[0].bad_words = has_bad_word ? words : NULL;
    params[0].num_bad_words = has_bad_word;
    struct nvllm_result *results = NULL;
    struct nvllm_error error = {0};
    if (nvllm_engine_generate(engine, requests, 2, &results, NULL, &error)) {
        fail_msg("%s", error.message);
    }
    struct nvllm_stats stats = {.struct_size = sizeof stats};
    nvllm_engine_stats(engine, &stats);
    nvllm_results_free(results, 2);
    nvllm_engine_destroy(engine);
    return stats.num_steps;
}

static void test_a_bad_word_of_several_tokens_takes_no_more_steps(void **state) {
    (void)state;
    static const char *const devices[] = {"cpu", "cuda"};
    bool has_ranks = small_options().tensor_parallel_size > 1; // which the fake device has not
    for (size_t i = 0; i < ARRAY_LEN(devices) - has_ranks; i++) {
        assert_int_equal(num_steps(devices[i], true), num_steps(devices[i], false));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_masks_hold),
        cmocka_unit_test(test_every_way_is_the_same),
        cmocka_unit_test(test_a_bad_word_of_several_tokens_takes_no_more_steps),
    };
    return cmocka_run_group_tests(tests, make_expected, free_expected);
}
