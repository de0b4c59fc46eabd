/* Drafts of the tokens that come next, from the text itself (draft/draft_index.h) and from others'
 * (draft/draft_pool.h). They change no token: a step runs them behind the last token and samples
 * behind each. A row that follows a draft sees what it would see if the draft were the output's,
 * and draws its own number. So it samples the very token that a later step would have sampled, if
 * the draft is right. It is right if the row before it sampled it.
 *
 * Where an output's form leaves no choice, the draft is what must come. It is right for certain. So
 * all outputs with forms skip such text, where the drafter finds that it pays. Where steps overlap
 * they do so also without the option: then there are no other drafts. */
#include <stdlib.h>

#include "engine/llm_engine_internal.h"

enum status llm_engine_init_drafts(struct llm_engine *engine, struct err *err) {
    const struct draft_options *options = &engine->plan.drafts;
    if (!options->num_tokens) return OK;
    drafter_init(&engine->drafter, options, &engine->plan.draft_costs,
                 engine->plan.runner.decoder.limits.max_num_seqs);
    engine->draft_offers = calloc(engine->drafter.rows_max, sizeof *engine->draft_offers);
    if (!engine->draft_offers) return err_nomem(err, "drafts");
    if (!options->uses_others) return OK;
    return draft_pool_init(&engine->draft_pool, options->min_len, options->max_len, err);
}

enum status llm_engine_init_output_drafts(const struct llm_engine *engine, struct request *request,
                                          struct err *err) {
    const struct draft_options *options = &engine->plan.drafts;
    if (!options->num_tokens || options->only_forced) return OK;
    return draft_index_init(&request->draft_index, request->seq->num_tokens_max, options->min_len,
                            options->max_len, err);
}

// Finds a draft. The sequence's last `skipped` tokens are pending, so their ids must be guessed
// too: `draft` gets the guesses for these, then the draft itself. The step has num_seqs sequences.
static struct draft_offer offer_of(struct llm_engine *engine, const struct sequence *seq,
                                   uint32_t num_seqs, uint32_t skipped, int32_t *draft) {
    struct request *request = seq->user;
    uint32_t room = seq->num_tokens_max - seq->num_tokens;
    uint32_t most = engine->drafter.options.num_tokens;
    // The last token that may come is sampled, never run.
    if (room < 2) return (struct draft_offer){0};
    if (most > room - 1) most = room - 1;
    token_mask_settle(&request->sampling.mask);
    const struct constraint *constraint = request->sampling.mask.constraint;
    uint32_t num_forced =
        constraint ? constraint_forced_tokens(constraint, draft, most + skipped) : 0;
    request->draft_is_forced = num_forced > skipped;
    if (request->draft_is_forced) return drafter_offer_certain(num_forced - skipped, skipped);
    if (!drafter_may_guess(&engine->drafter, num_seqs)) return (struct draft_offer){0};
    uint32_t count =
        draft_index_find(&request->draft_index, seq->token_ids, seq->num_tokens - skipped, draft,
                         most + skipped, &request->match_len);
    uint32_t others = draft_pool_find(&engine->draft_pool, seq->cache_salt, seq->token_ids,
                                      seq->num_tokens - skipped, count ? request->match_len : 0,
                                      draft, most + skipped, &request->match_len);
    if (others) count = others;
    if (count <= skipped) return (struct draft_offer){0};
    request->seen_token = draft[0];
    request->seen_place = seq->num_tokens - skipped;
    if (!drafter_may_follow(&engine->drafter, request->match_len)) return (struct draft_offer){0};
    return drafter_offer(&engine->drafter, &request->draft_record, request->match_len,
                         count - skipped, skipped);
}

bool llm_engine_awaits_drafts(struct llm_engine *engine) {
    struct drafter *drafter = &engine->drafter;
    uint32_t num_seqs = 0;
    bool any = false;
    uint32_t num_running = scheduler_num_running(engine->scheduler);
    if (!drafter_is_on(drafter) || drafter_has_no_room(drafter, num_running)) return false;
    const struct sequence *seq = scheduler_first_running(engine->scheduler);
    for (; seq; seq = seq->next) {
        int32_t draft[1 + DRAFT_TOKENS_MAX];
        if (!seq->has_pending_token) return false; // its prompt runs in the next step
        struct draft_offer offer = offer_of(engine, seq, num_running, 1, draft);
        any = any || offer.num_tokens;
        engine->draft_offers[num_seqs++] = offer;
    }
    return any && drafter_choose(drafter, num_seqs, engine->draft_offers, num_seqs, 1) > 0;
}

static void settle(void *arg, uint32_t index, uint32_t thread) {
    (void)thread;
    const struct schedule *schedule = arg;
    struct request *request = schedule->items[index].seq->user;
    token_mask_settle(&request->sampling.mask);
}

void llm_engine_add_drafts(struct llm_engine *engine, struct schedule *schedule) {
    struct drafter *drafter = &engine->drafter;
    uint32_t num_decodes = schedule->num_decode_tokens, num_items = schedule->num_items;
    bool any = false;
    if (!drafter_is_on(drafter) || drafter_has_no_room(drafter, num_items)) return;
    if (drafter->options.is_adaptive && schedule->num_prefill_tokens) return;
    if (engine->mask_threads) {
        thread_pool_for(engine->mask_threads, num_decodes, settle, schedule);
    }
    for (uint32_t i = 0; i < num_decodes; i++) {
        struct sequence *seq = schedule->items[i].seq;
        struct draft_offer *offer = &engine->draft_offers[i];
        *offer = offer_of(engine, seq, num_items, 0, seq->token_ids + seq->num_tokens);
        any = any || offer->num_tokens;
    }
    if (!any || !drafter_choose(drafter, num_items, engine->draft_offers, num_decodes, 0)) return;
    for (uint32_t i = 0; i < num_decodes; i++) {
        struct scheduled *item = &schedule->items[i];
        struct request *request = item->seq->user;
        uint32_t count = engine->draft_offers[i].num_tokens;
        if (!count) continue;
        struct constraint *constraint = request->sampling.mask.constraint;
        if (constraint && !request->draft_is_forced) {
            count =
                constraint_fitting(constraint, item->seq->token_ids + item->seq->num_tokens, count);
        }
        scheduler_add_drafts(engine->scheduler, item, count);
    }
}

void llm_engine_count_draft_step(struct llm_engine *engine, const struct schedule *schedule,
                                 bool has_waited) {
    struct drafter *drafter = &engine->drafter;
    // Tokens that a form demanded are computed like a prompt, so here all items are decodes.
    if (!drafter_is_on(drafter) || schedule->num_prefill_tokens) return;
    drafter_count_step(drafter, schedule->num_items, schedule->num_draft_tokens, has_waited);
}

// Without drafts in its step, what would have been drafted teaches how often drafts are right.
static void learn_seen(struct llm_engine *engine, const struct scheduled *item, int32_t token_id) {
    struct request *request = item->seq->user;
    if (request->seen_place && request->seen_place == item->start + item->num_tokens) {
        drafter_learn_seen(&engine->drafter, &request->draft_record, request->match_len,
                           request->seen_token == token_id);
    }
    request->seen_place = 0;
}

uint32_t llm_engine_verify_drafts(struct llm_engine *engine, const struct scheduled *item,
                                  const int32_t *ran, const struct sample_result *results) {
    struct request *request = item->seq->user;
    const int32_t *drafts = ran + item->num_tokens - item->num_drafts;
    uint32_t num_right = 0;
    if (!item->num_drafts) {
        learn_seen(engine, item, results[0].token_id);
        return 0;
    }
    while (num_right < item->num_drafts && results[num_right].token_id == drafts[num_right]) {
        num_right++;
    }
    // A step with drafts adds no token to the counts. So they begin anew, with the kept tokens.
    token_count_slots_give_back(&engine->token_count_slots, request);
    drafter_gain(&engine->drafter, num_right);
    if (!request->draft_is_forced) {
        drafter_learn(&engine->drafter, &request->draft_record, request->match_len,
                      item->num_drafts, num_right);
    }
    return num_right;
}

void llm_engine_count_drafts(struct llm_engine *engine, const struct scheduled *item,
                             uint32_t num_right, uint32_t num_taken) {
    struct nvllm_stats *stats = &engine->stats;
    if (!item->num_drafts) return;
    stats->num_drafts++;
    stats->num_draft_tokens += item->num_drafts;
    stats->num_accepted_tokens += num_right < num_taken ? num_right : num_taken;
    if (num_taken > 1) stats->num_decode_tokens += num_taken - 1;
}
