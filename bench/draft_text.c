/* How many steps drafts save where a model writes a given text. No model runs: the text is the
 * answer, so a draft is right where the text goes on like it.
 *
 *   nanovllm tokenize -m MODEL TEXT... | bench_draft_text PROMPT_TOKENS
 *
 * Each line of the input has the token ids of a text, in any form of list. The first PROMPT_TOKENS
 * are the prompt. The texts are written one after the other, by one stream, with the drafts of
 * `--drafts auto`. Printed are steps and drafts, and the times of all tokens by the table of
 * engine/draft/draft_costs.h, in steps without drafts. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "engine/draft/draft_index.h"
#include "engine/draft/draft_pool.h"
#include "engine/draft/drafter.h"

enum { TOKENS_MAX = 1 << 16 };

static const struct kind {
    const char *name;
    struct draft_machine machine;
} kinds[] = {
    {"0.6B, GPU", {.has_queue = true, .has_cheap_rows = true, .num_parameters = 600000000}},
    {"8B, GPU", {.has_queue = true, .has_cheap_rows = true, .num_parameters = 8000000000}},
    {"0.6B, CPU", {.has_cheap_rows = true, .num_parameters = 600000000}},
};

struct text {
    int32_t tokens[TOKENS_MAX];
    uint32_t num_tokens;
};

struct count {
    uint32_t num_tokens, num_steps, num_drafted, num_right;
    double cost;
};

// False: the input has ended. Its last line may have no end.
static bool read_line(struct text *text) {
    text->num_tokens = 0;
    int c = getchar();
    while (c != EOF && c != '\n') {
        uint32_t token = 0;
        if (!isdigit(c)) {
            c = getchar();
            continue;
        }
        for (; isdigit(c); c = getchar()) token = token * 10 + (uint32_t)(c - '0');
        CHECK(text->num_tokens < TOKENS_MAX, "more than %d tokens", TOKENS_MAX);
        text->tokens[text->num_tokens++] = (int32_t)token;
    }
    return c != EOF || text->num_tokens;
}

static struct draft_offer offer_of(const struct drafter *drafter, const struct draft_pool *pool,
                                   struct draft_index *index, const struct draft_record *record,
                                   const struct text *text, uint32_t at, uint32_t skipped,
                                   int32_t *draft, uint32_t *match_len, bool *is_seen) {
    uint32_t most = DRAFT_TOKENS_MAX + skipped, known = at - skipped;
    if (!drafter_may_guess(drafter, 1)) return (struct draft_offer){0};
    uint32_t num = draft_index_find(index, text->tokens, known, draft, most, match_len);
    uint32_t others =
        draft_pool_find(pool, 0, text->tokens, known, num ? *match_len : 0, draft, most, match_len);
    if (others) num = others;
    if (num <= skipped) return (struct draft_offer){0};
    *is_seen = true;
    if (!drafter_may_follow(drafter, *match_len)) return (struct draft_offer){0};
    return (struct draft_offer){num - skipped, drafter_right(drafter, record, *match_len)};
}

static void write_text(struct drafter *drafter, struct draft_pool *pool, bool overlaps,
                       const struct text *text, uint32_t num_prompt, struct count *count) {
    struct draft_index index;
    struct draft_record record = {{0}};
    const struct draft_options *options = &drafter->options;
    CHECK(!draft_index_init(&index, TOKENS_MAX, options->min_len, options->max_len, NULL),
          "no memory");
    bool had_drafts = false;
    for (uint32_t at = num_prompt; at < text->num_tokens;) {
        int32_t draft[1 + DRAFT_TOKENS_MAX];
        uint32_t match_len = 0, num_right = 0;
        struct draft_offer offer = {0};
        bool waits = overlaps && had_drafts, is_seen = false;
        if (overlaps && !waits && at > num_prompt) {
            offer =
                offer_of(drafter, pool, &index, &record, text, at, 1, draft, &match_len, &is_seen);
            waits = offer.num_tokens && drafter_choose(drafter, 1, &offer, 1, 1);
        }
        offer.num_tokens = 0;
        if (waits || !overlaps) {
            offer =
                offer_of(drafter, pool, &index, &record, text, at, 0, draft, &match_len, &is_seen);
            if (offer.num_tokens) drafter_choose(drafter, 1, &offer, 1, 0);
        }
        while (num_right < offer.num_tokens && at + num_right < text->num_tokens &&
               text->tokens[at + num_right] == draft[num_right]) {
            num_right++;
        }
        drafter_count_step(drafter, 1, offer.num_tokens, waits);
        if (offer.num_tokens) {
            drafter_gain(drafter, num_right);
            drafter_learn(drafter, &record, match_len, offer.num_tokens, num_right);
        }
        if (!offer.num_tokens && is_seen) {
            bool was_skipped = overlaps && !waits;
            drafter_learn_seen(drafter, &record, match_len,
                               text->tokens[was_skipped ? at - 1 : at] == draft[0]);
        }
        count->num_steps++;
        count->num_drafted += offer.num_tokens;
        count->num_right += num_right;
        count->cost += 1 + draft_costs_more(&drafter->costs, 1, offer.num_tokens, waits);
        had_drafts = offer.num_tokens > 0;
        at += 1 + num_right;
    }
    count->num_tokens += text->num_tokens - num_prompt;
    draft_pool_add(pool, 0, text->tokens, text->num_tokens, num_prompt);
    draft_index_fini(&index);
}

int main(int argc, char **argv) {
    static struct text text;
    if (argc != 2) {
        fprintf(stderr, "usage: bench_draft_text PROMPT_TOKENS < LINES\n");
        return 2;
    }
    uint32_t num_prompt = (uint32_t)strtoul(argv[1], NULL, 10);
    enum { NUM_KINDS = sizeof kinds / sizeof *kinds };
    struct drafter drafters[NUM_KINDS];
    struct draft_pool pools[NUM_KINDS];
    struct count counts[NUM_KINDS] = {{0}};
    const struct nvllm_engine_options usual = NVLLM_ENGINE_OPTIONS_INIT;
    struct draft_options options;
    CHECK(!draft_options_read(&options, &usual, false, NULL), "no drafts");
    for (int i = 0; i < NUM_KINDS; i++) {
        const struct draft_costs costs = draft_costs_of(&kinds[i].machine);
        drafter_init(&drafters[i], &options, &costs, DRAFT_ROWS_MAX);
        CHECK(!draft_pool_init(&pools[i], options.max_len, NULL), "no memory");
    }
    while (read_line(&text)) {
        if (text.num_tokens <= num_prompt) continue;
        for (int i = 0; i < NUM_KINDS; i++) {
            write_text(&drafters[i], &pools[i], kinds[i].machine.has_queue, &text, num_prompt,
                       &counts[i]);
        }
    }
    for (int i = 0; i < NUM_KINDS; i++) {
        const struct count *count = &counts[i];
        printf("%-10s %u tokens in %u steps, %u drafted, %u right: %.3f tokens a step, %.3f times "
               "as fast by the table\n",
               kinds[i].name, count->num_tokens, count->num_steps, count->num_drafted,
               count->num_right, count->num_tokens / (double)count->num_steps,
               count->num_tokens / count->cost);
        draft_pool_fini(&pools[i]);
    }
    return 0;
}
