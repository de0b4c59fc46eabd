/* Times of structured output on one thread: compiling, and the mask before each token of texts.
 *
 *   bench_structured TOKENIZER.json CASES.jsonl
 *
 * A line is {"schema": JSON schema, "grammar": GBNF or "regex": expression, "texts": ["...", ...]},
 * maybe with "valid": [true, false, ...] for the texts, and with "any_key_order": true beside a
 * schema. Each text is tokenized. Before each token a mask is made, which must allow it, and at the
 * end the text must be complete. Prints percentiles in microseconds of this thread's processor
 * time, and the texts for which that is not as "valid" says. Reading the clock takes 0.6 us of
 * them. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json/jread.h"
#include "structured/matcher.h"
#include "structured/read/expression.h"
#include "structured/read/gbnf.h"
#include "structured/schema/schema.h"
#include "structured/vocabulary/vocabulary_tokenizer.h"
#include "text/tokenizer/tokenizer.h"

// Other processes on the machine do not count.
static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

struct samples {
    double *data; // [len] microseconds
    size_t len, capacity;
};

struct bench {
    struct tokenizer *tokenizer;
    struct vocabulary *vocabulary;
    uint32_t *words; // [num_words]
    struct samples compile, first, mask, take;
    size_t num_refused, num_wrong, num_right;
    struct automaton_stats stats;
    size_t bytes_max;
};

static void add(struct samples *samples, double duration) {
    if (samples->len == samples->capacity) {
        samples->capacity = samples->capacity * 2 + 1024;
        samples->data = realloc(samples->data, samples->capacity * sizeof *samples->data);
        if (!samples->data) abort();
    }
    samples->data[samples->len++] = duration * 1e6;
}

static int compare(const void *x, const void *y) {
    const double *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

static void print(const char *name, struct samples *samples) {
    static const double at[] = {0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1};
    double sum = 0;
    if (!samples->len) return;
    qsort(samples->data, samples->len, sizeof *samples->data, compare);
    for (size_t i = 0; i < samples->len; i++) sum += samples->data[i];
    printf("%-14s %8zu  average %8.2f  percentiles", name, samples->len,
           sum / (double)samples->len);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        size_t place = (size_t)(at[i] * (double)(samples->len - 1));
        printf(" %.2f", samples->data[place]);
    }
    printf("\n");
}

// Whether the text fits; *at is the number of its tokens that do.
static bool run_text(struct bench *bench, struct automaton *automaton, const char *text,
                     bool is_first, size_t *at) {
    struct token_list tokens = {0};
    struct matcher matcher;
    struct err err = {0};
    *at = 0;
    if (tokenizer_encode(bench->tokenizer, text, strlen(text), false, NULL, &tokens, &err) ||
        matcher_init(&matcher, automaton, &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    bool fits = true;
    for (size_t i = 0; i <= tokens.len && fits; i++) {
        int32_t token = i < tokens.len ? tokens.ids[i] : bench->vocabulary->ending[0];
        bool any;
        double began = seconds();
        enum status status = matcher_mask(&matcher, bench->words, &any, &err);
        double made = seconds();
        fits = !status && bench->words[token / 32] >> (token % 32) & 1;
        status = matcher_take(&matcher, token, NULL);
        double taken = seconds();
        add(is_first && i == 0 ? &bench->first : &bench->mask, made - began);
        if (fits) add(&bench->take, taken - made);
        if ((status == OK) != fits) printf("  a token fits %d, its mask says %d\n", !status, fits);
        *at += fits;
    }
    matcher_fini(&matcher);
    token_list_fini(&tokens);
    return fits;
}

static enum status compile(struct bench *bench, const json_t *line, struct automaton **automaton,
                           struct err *err) {
    struct grammar *grammar;
    enum status status = grammar_create(&grammar, NULL, err);
    if (status) return status;
    const char *gbnf = json_string_value(json_object_get(line, "grammar"));
    const char *regex = json_string_value(json_object_get(line, "regex"));
    const json_t *schema = json_object_get(line, "schema");
    uint32_t rule = 0;
    if (schema) {
        const struct schema_options options = {
            .any_key_order = json_is_true(json_object_get(line, "any_key_order"))};
        status = schema_add(grammar, schema, &options, &rule, NULL, err);
    } else if (gbnf) {
        status = gbnf_add(grammar, gbnf, strlen(gbnf), &rule, err);
    } else if (regex) {
        status = expression_add(grammar, regex, strlen(regex), &rule, err);
    } else {
        status = err_set(err, ERR_INVALID, "a line has no constraint");
    }
    if (status) {
        grammar_destroy(grammar);
        return status;
    }
    grammar_start(grammar, rule);
    return automaton_create(automaton, grammar, bench->vocabulary, NULL, err);
}

static void run_line(struct bench *bench, const json_t *line, size_t number) {
    struct automaton *automaton = NULL;
    struct err err = {0};
    double began = seconds();
    enum status status = compile(bench, line, &automaton, &err);
    add(&bench->compile, seconds() - began);
    if (status) {
        printf("line %zu refused: %s\n", number, err.message);
        bench->num_refused++;
        return;
    }
    const json_t *texts = json_object_get(line, "texts"), *valid = json_object_get(line, "valid");
    bool wrong = false;
    for (size_t i = 0; i < json_array_size(texts); i++) {
        size_t at;
        const char *text = json_string_value(json_array_get(texts, i));
        bool fits = run_text(bench, automaton, text, i == 0, &at);
        bool expected = !valid || json_is_true(json_array_get(valid, i));
        if (fits == expected) continue;
        printf("line %zu text %zu %s (token %zu): %.200s\n", number, i,
               fits ? "fits" : "does not fit", at, text);
        wrong = true;
    }
    bench->num_wrong += wrong;
    bench->num_right += !wrong;
    struct automaton_stats stats;
    automaton_stats(automaton, &stats);
    bench->stats.num_masks_made += stats.num_masks_made;
    bench->stats.num_states += stats.num_states;
    bench->stats.mask_seconds += stats.mask_seconds;
    if (stats.bytes > bench->bytes_max) bench->bytes_max = stats.bytes;
    automaton_release(automaton);
}

int main(int argc, char **argv) {
    struct bench bench = {0};
    struct err err = {0};
    if (argc != 3) {
        fprintf(stderr, "usage: bench_structured TOKENIZER.json CASES.jsonl\n");
        return 2;
    }
    if (tokenizer_open_file(&bench.tokenizer, argv[1], &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    uint32_t num_tokens = tokenizer_num_tokens(bench.tokenizer);
    int32_t ending = (int32_t)num_tokens; // one more, which no text has
    double began = seconds();
    if (vocabulary_of_tokenizer(&bench.vocabulary, bench.tokenizer, num_tokens + 1, &ending, 1,
                                &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    printf("vocabulary: %u tokens, %u nodes, %u in the rest, %u twins, %.1f ms\n", num_tokens,
           bench.vocabulary->all.num_nodes, bench.vocabulary->rest.num_nodes,
           bench.vocabulary->num_twins, (seconds() - began) * 1e3);
    FILE *file = fopen(argv[2], "r");
    if (!file) {
        perror(argv[2]);
        return 1;
    }
    bench.words = calloc(bench.vocabulary->num_words, sizeof *bench.words);
    if (!bench.words) abort();
    char *text = NULL;
    size_t capacity = 0;
    ssize_t len;
    for (size_t n = 1; (len = getline(&text, &capacity, file)) >= 0; n++) {
        char name[32];
        json_t *line;
        snprintf(name, sizeof name, "line %zu", n);
        if (jread_request(&line, text, (size_t)len, name, &err)) {
            fprintf(stderr, "%s\n", err.message);
            return 1;
        }
        run_line(&bench, line, n);
        json_decref(line);
    }
    free(text);
    fclose(file);
    print("compile", &bench.compile);
    print("first mask", &bench.first);
    print("mask", &bench.mask);
    print("take", &bench.take);
    printf("right %zu, wrong %zu, refused %zu; %llu masks made in %.1f us each; states %llu; at "
           "most %zu KiB\n",
           bench.num_right, bench.num_wrong, bench.num_refused,
           (unsigned long long)bench.stats.num_masks_made,
           bench.stats.num_masks_made
               ? bench.stats.mask_seconds * 1e6 / (double)bench.stats.num_masks_made
               : 0.0,
           (unsigned long long)bench.stats.num_states, bench.bytes_max >> 10);
    vocabulary_destroy(bench.vocabulary);
    tokenizer_close(bench.tokenizer);
    free(bench.words);
    return 0;
}
