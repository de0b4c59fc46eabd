/* How many steps drafts save where a model writes given texts. No model runs: the text is the
 * answer, so a draft is right where the text goes on like it.
 *
 *   nanovllm tokenize -m MODEL TEXT... | bench_draft_text PROMPT_TOKENS [STREAMS]
 *
 * The lines are those of draft_lines.h.
 *
 * So many streams write the texts, with the drafts of `--drafts auto`. A stream that has ended one
 * takes the next. Printed are steps and drafts, and how many times as fast all this is as without
 * drafts, by the table of engine/draft/draft_costs.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "draft_lines.h"
#include "engine/draft/draft_index.h"
#include "engine/draft/draft_pool.h"
#include "engine/draft/drafter.h"

enum { STREAMS_MAX = 64 };

static const struct kind {
    const char *name;
    struct draft_machine machine;
} kinds[] = {
    {"0.6B, GPU", {.has_queue = true, .has_cheap_rows = true, .num_parameters = 600000000}},
    {"8B, GPU", {.has_queue = true, .has_cheap_rows = true, .num_parameters = 8000000000}},
    {"0.6B, CPU", {.has_cheap_rows = true, .num_parameters = 600000000}},
};

// What writes a text.
struct stream {
    const struct text *text; // NULL: there is none left
    uint32_t at; // of the text, what is there
    struct draft_index index;
    struct draft_record record;
    // The draft that was found last, and the text's place of its first token.
    int32_t draft[1 + DRAFT_TOKENS_MAX];
    uint32_t match_len, seen_place;
};

struct run {
    const struct kind *kind;
    struct text *texts; // [num_texts]
    uint32_t num_texts, next, num_streams;
    struct draft_options options;
    struct drafter drafter;
    struct draft_pool pool;
    struct stream streams[STREAMS_MAX];
    struct draft_offer offers[STREAMS_MAX]; // of the streams that write, in their order
    uint32_t num_tokens, num_steps, num_drafted, num_right;
    double cost; // in steps of one stream
};

static void next_text(struct run *run, struct stream *stream) {
    *stream = (struct stream){0};
    if (run->next == run->num_texts) return;
    stream->text = &run->texts[run->next++];
    stream->at = stream->text->num_prompt;
    CHECK(!draft_index_init(&stream->index, TOKENS_MAX, run->options.min_len, run->options.max_len,
                            NULL),
          "no memory");
}

static struct draft_offer offer_of(struct run *run, struct stream *stream, uint32_t num_seqs,
                                   uint32_t skipped) {
    const struct drafter *drafter = &run->drafter;
    const int32_t *tokens = stream->text->tokens;
    uint32_t most = DRAFT_TOKENS_MAX + skipped, known = stream->at - skipped;
    if (!drafter_may_guess(drafter, num_seqs)) return (struct draft_offer){0};
    uint32_t num =
        draft_index_find(&stream->index, tokens, known, stream->draft, most, &stream->match_len);
    uint32_t others = draft_pool_find(&run->pool, 0, tokens, known, num ? stream->match_len : 0,
                                      stream->draft, most, &stream->match_len);
    if (others) num = others;
    if (num <= skipped) return (struct draft_offer){0};
    stream->seen_place = known;
    if (!drafter_may_follow(drafter, stream->match_len)) return (struct draft_offer){0};
    return drafter_offer(drafter, &stream->record, stream->match_len, num - skipped, skipped);
}

// Fills in the offers. Returns how many tokens are drafted.
static uint32_t choose(struct run *run, uint32_t num_seqs, uint32_t skipped) {
    uint32_t num_offers = 0;
    for (uint32_t i = 0; i < run->num_streams; i++) {
        struct stream *stream = &run->streams[i];
        if (!stream->text) continue;
        // The first token of an answer is not pending: its prompt has just run.
        if (skipped && stream->at == stream->text->num_prompt) return 0;
        run->offers[num_offers++] = offer_of(run, stream, num_seqs, skipped);
    }
    return drafter_choose(&run->drafter, num_seqs, run->offers, num_offers, skipped);
}

static void write_tokens(struct run *run, struct stream *stream, uint32_t num_drafts) {
    struct drafter *drafter = &run->drafter;
    const struct text *text = stream->text;
    uint32_t num_right = 0, at = stream->at;
    while (num_right < num_drafts && at + num_right < text->num_tokens &&
           text->tokens[at + num_right] == stream->draft[num_right]) {
        num_right++;
    }
    if (num_drafts) {
        drafter_gain(drafter, num_right);
        drafter_learn(drafter, &stream->record, stream->match_len, num_drafts, num_right);
    } else if (stream->seen_place) {
        drafter_learn_seen(drafter, &stream->record, stream->match_len,
                           text->tokens[stream->seen_place] == stream->draft[0]);
    }
    run->num_drafted += num_drafts;
    run->num_right += num_right;
    stream->seen_place = 0;
    stream->at += 1 + num_right;
    if (stream->at < text->num_tokens) return;
    run->num_tokens += text->num_tokens - text->num_prompt;
    draft_pool_add(&run->pool, 0, text->tokens, text->num_tokens, text->num_prompt);
    draft_index_fini(&stream->index);
    next_text(run, stream);
}

static uint32_t num_writing(const struct run *run) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < run->num_streams; i++) count += run->streams[i].text != NULL;
    return count;
}

static void run_all(struct run *run, bool has_drafts) {
    bool overlaps = run->kind->machine.has_queue, had_drafts = false;
    struct draft_costs costs = draft_costs_of(&run->kind->machine);
    const struct nvllm_engine_options usual = NVLLM_ENGINE_OPTIONS_INIT;
    CHECK(!draft_options_read(&run->options, &usual, false, NULL), "no drafts");
    drafter_init(&run->drafter, &run->options, &costs, DRAFT_AUTO_ROWS_MAX);
    if (!has_drafts) run->drafter.costs.seqs_max = 0;
    CHECK(!draft_pool_init(&run->pool, run->options.min_len, run->options.max_len, NULL),
          "no memory");
    for (uint32_t i = 0; i < run->num_streams; i++) next_text(run, &run->streams[i]);
    for (uint32_t num_seqs; (num_seqs = num_writing(run)); run->num_steps++) {
        bool waits = overlaps && (had_drafts || choose(run, num_seqs, 1));
        memset(run->offers, 0, sizeof run->offers);
        uint32_t num_drafts = waits || !overlaps ? choose(run, num_seqs, 0) : 0;
        drafter_count_step(&run->drafter, num_seqs, num_drafts, waits);
        run->cost += (1 + costs.price.sequence * (num_seqs - 1)) *
                     (1 + draft_costs_more(&costs, num_seqs, num_drafts, waits));
        for (uint32_t i = 0, k = 0; i < run->num_streams; i++) {
            if (!run->streams[i].text) continue;
            write_tokens(run, &run->streams[i], run->offers[k++].num_tokens);
        }
        had_drafts = num_drafts > 0;
    }
    draft_pool_fini(&run->pool);
}

int main(int argc, char **argv) {
    static struct text texts[TEXTS_MAX];
    static struct run runs[2]; // without drafts, and with
    uint32_t num_streams = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;
    if (argc < 2 || num_streams < 1 || num_streams > STREAMS_MAX) {
        fprintf(stderr, "usage: bench_draft_text PROMPT_TOKENS|each [STREAMS] < LINES\n");
        return 2;
    }
    uint32_t num_texts = draft_lines_read(stdin, texts, argv[1]);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        for (int k = 0; k < 2; k++) {
            runs[k] = (struct run){.kind = &kinds[i],
                                   .texts = texts,
                                   .num_texts = num_texts,
                                   .num_streams = num_streams};
            run_all(&runs[k], k > 0);
        }
        const struct run *run = &runs[1];
        printf("%-10s %u tokens in %u steps, %u without drafts; %u drafted, %u right: %.3f times "
               "as fast by the table\n",
               kinds[i].name, run->num_tokens, run->num_steps, runs[0].num_steps, run->num_drafted,
               run->num_right, runs[0].cost / run->cost);
    }
    draft_lines_free(texts, num_texts);
    return 0;
}
