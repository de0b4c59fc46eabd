/* How fast drafts are where a model writes given texts. The engine is the real one, with the
 * model's shape, its steps and its sampling, but what it sampled for an output is replaced by what
 * the text has at that place: two functions are replaced when this program is linked (--wrap). So
 * drafts are right where the text goes on like them.
 *
 *   bench_draft_engine MODEL ROUNDS [OPTION=VALUE...] STREAMS:FILE...
 *
 * The options are the engine's, as in C: load_format=dummy. Each file has lines as in
 * draft_lines.h, with the number of the prompt's tokens in front. So many streams write its texts,
 * each the next one when it has ended one.
 *
 * Each round runs all files in turn, without drafts and then with --drafts auto. No text is found
 * in a prefix cache, and none of another turn is drafted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/os/clock.h"
#include "draft_lines.h"
#include "engine/llm_engine_internal.h"
#include "nanovllm.h"

enum { WAYS = 2 };

static const char *const ways[WAYS] = {"off", "auto"};

// The functions that are replaced know of no context, so this is the file's.
static struct bench {
    struct text texts[TEXTS_MAX]; // [num_texts]
    uint32_t num_texts, num_streams;
    struct nvllm_engine *engine; // that runs
    char salt[32]; // of this round and way
    uint32_t next, num_writing; // of this round
    const struct text *by_id[TEXTS_MAX]; // of the engine's requests, which have ids in a row
    uint64_t first_id; // of this round
} bench;

// ---- what is sampled ----

// What stands in the text in place of these results, the first of which is the next token's.
static const struct sample_result *forced(const struct request *request,
                                          const struct sample_result *results, uint32_t count) {
    static struct sample_result copies[LLM_ENGINE_STEP_TOKENS_MAX];
    const struct text *text = bench.by_id[request->seq->id - bench.first_id];
    uint32_t place = sequence_num_known(request->seq);
    memcpy(copies, results, count * sizeof *copies);
    for (uint32_t i = 0; i < count && place + i < text->num_tokens; i++) {
        copies[i].token_id = text->tokens[place + i];
    }
    return copies;
}

#define WRAP(name, ...)                                                                            \
    uint32_t __real_##name(__VA_ARGS__);                                                           \
    uint32_t __wrap_##name(__VA_ARGS__);                                                           \
    uint32_t __wrap_##name(__VA_ARGS__)

WRAP(llm_engine_verify_drafts, struct llm_engine *engine, const struct scheduled *item,
     const int32_t *ran, const struct sample_result *results) {
    results = forced(item->seq->user, results, scheduled_num_rows(item));
    return __real_llm_engine_verify_drafts(engine, item, ran, results);
}

WRAP(llm_engine_take_tokens, struct llm_engine *engine, struct request *request,
     const struct sample_result *results, uint32_t num_results, double now) {
    results = forced(request, results, num_results);
    return __real_llm_engine_take_tokens(engine, request, results, num_results, now);
}

// ---- a round ----

static void on_event(const struct nvllm_event *event, void *user_data) {
    const struct text *text = user_data;
    if (!event->finish_reason) return;
    CHECK(!event->error, "%s", event->error);
    CHECK(event->num_generated_tokens == text->num_tokens - text->num_prompt &&
              memcmp(event->generated_token_ids, text->tokens + text->num_prompt,
                     event->num_generated_tokens * sizeof *text->tokens) == 0,
          "another text");
    bench.num_writing--;
}

static void add_next(void) {
    struct text *text = &bench.texts[bench.next];
    struct nvllm_sampling_params sampling = NVLLM_SAMPLING_PARAMS_INIT;
    struct nvllm_request request = NVLLM_REQUEST_INIT;
    struct nvllm_error error = {0};
    uint64_t id;
    sampling.temperature = 1;
    sampling.max_tokens = (int32_t)(text->num_tokens - text->num_prompt);
    sampling.ignore_eos = 1;
    request.prompt_token_ids = text->tokens;
    request.num_prompt_token_ids = text->num_prompt;
    request.sampling = &sampling;
    request.cache_salt = bench.salt;
    request.on_event = on_event;
    request.user_data = text;
    CHECK(nvllm_engine_add_request(bench.engine, &request, &id, &error) == NVLLM_OK, "%s",
          error.message);
    if (bench.next == 0) bench.first_id = id;
    bench.by_id[id - bench.first_id] = text;
    bench.next++;
    bench.num_writing++;
}

// Returns tokens a second.
static double run_round(void) {
    struct nvllm_error error = {0};
    uint64_t num_tokens = 0;
    bench.next = 0;
    double begin = clock_seconds();
    for (;;) {
        while (bench.num_writing < bench.num_streams && bench.next < bench.num_texts) add_next();
        if (!nvllm_engine_has_unfinished(bench.engine)) break;
        CHECK(nvllm_engine_step(bench.engine, &error) == NVLLM_OK, "%s", error.message);
    }
    double seconds = clock_seconds() - begin;
    for (uint32_t i = 0; i < bench.num_texts; i++) {
        num_tokens += bench.texts[i].num_tokens - bench.texts[i].num_prompt;
    }
    return (double)num_tokens / seconds;
}

// Measures a round of the texts.
static void measure(struct nvllm_engine *const *engines, const char *name) {
    double rates[WAYS];
    static uint32_t turn;
    for (int way = 0; way < WAYS; way++) {
        struct nvllm_stats before = NVLLM_STATS_INIT, after = NVLLM_STATS_INIT;
        snprintf(bench.salt, sizeof bench.salt, "%u", turn++);
        bench.engine = engines[way];
        nvllm_engine_stats(bench.engine, &before);
        rates[way] = run_round();
        nvllm_engine_stats(bench.engine, &after);
        printf("%s, %-4s %9.1f tok/s, %.3f of off; %llu tokens in %llu steps; %llu drafted, %llu "
               "right\n",
               name, ways[way], rates[way], rates[way] / rates[0],
               (unsigned long long)(after.num_generated_tokens - before.num_generated_tokens),
               (unsigned long long)(after.num_steps - before.num_steps),
               (unsigned long long)(after.num_draft_tokens - before.num_draft_tokens),
               (unsigned long long)(after.num_accepted_tokens - before.num_accepted_tokens));
        fflush(stdout);
    }
}

static void measure_file(struct nvllm_engine *const *engines, const char *arg) {
    char *path;
    bench.num_streams = (uint32_t)strtoul(arg, &path, 10);
    CHECK(bench.num_streams && *path == ':', "%s is no STREAMS:FILE", arg);
    FILE *input = fopen(path + 1, "r");
    CHECK(input, "cannot read %s", path + 1);
    bench.num_texts = draft_lines_read(input, bench.texts, "each");
    fclose(input);
    CHECK(bench.num_texts, "%s has no texts", path + 1);
    measure(engines, arg);
    draft_lines_free(bench.texts, bench.num_texts);
}

static void set_option(struct nvllm_engine_options *options, char *pair) {
    struct nvllm_error error = {0};
    char *value = strchr(pair, '=');
    *value++ = '\0';
    CHECK(nvllm_engine_options_set(options, pair, value, &error) == NVLLM_OK, "%s", error.message);
}

int main(int argc, char **argv) {
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    struct nvllm_engine *engines[WAYS] = {NULL};
    struct nvllm_error error = {0};
    int first = 3;
    options.skip_tokenizer_init = 1;
    for (; first < argc && strchr(argv[first], '='); first++) set_option(&options, argv[first]);
    if (first >= argc) {
        fprintf(stderr, "usage: bench_draft_engine MODEL ROUNDS [OPTION=VALUE...] "
                        "STREAMS:FILE...\n");
        return 2;
    }
    options.model = argv[1];
    for (int way = 0; way < WAYS; way++) {
        options.drafts = ways[way];
        CHECK(nvllm_engine_create(&engines[way], &options, &error) == NVLLM_OK, "%s",
              error.message);
    }
    for (unsigned long round = strtoul(argv[2], NULL, 10); round; round--) {
        for (int i = first; i < argc; i++) measure_file(engines, argv[i]);
    }
    for (int way = 0; way < WAYS; way++) nvllm_engine_destroy(engines[way]);
    return 0;
}
