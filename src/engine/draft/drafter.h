/* Decides how many tokens are drafted. Pure: no clock, no text. So requests that are all there when
 * an engine starts always make the same steps, however busy the machine is.
 *
 * A step that also runs drafts takes longer, and brings more tokens where they are right. How much
 * longer is a fixed table (draft_costs.h). How often they are right is counted while the engine
 * runs:
 * - how often a draft's next token was right, given that those before it were: for each sequence,
 *   by how many tokens had matched. Each right token of a draft makes the match longer by one;
 * - how many tokens were right of those that were expected to be. The drafts that are taken are
 *   those whose probability is thought to be high, so it is rather overestimated.
 *
 * The unit of costs is a step without drafts. With n sequences it brings n tokens. With the m most
 * probable tokens of all drafts a step brings n + e(m) tokens and costs c(n, m), where e is the sum
 * of their probabilities. The m with the most tokens for its cost is taken, if that is more than n.
 *
 * An account bounds what wrong guesses cost, whatever the text is. A step with drafts takes its
 * c(n, m) - 1 from it. A step that waited for drafts and has none takes the cost of waiting. A
 * right token gives 1 / n. Each step gives a small share of itself. Nothing is guessed while the
 * balance is below 0. So the loss is that share at most, and a few steps at the beginning, as long
 * as the table is not too low. */
#ifndef ENGINE_DRAFT_DRAFTER_H
#define ENGINE_DRAFT_DRAFTER_H

#include "engine/draft/draft_costs.h"
#include "engine/draft/draft_options.h"

enum {
    DRAFT_CLASSES = 6, // of matches, by their length
    DRAFT_LEVELS = 64, // of probabilities
};

// The probability that a token of a draft is right if all before it are, by the match's class.
struct draft_record {
    float right[DRAFT_CLASSES]; // 0: of this class no draft was verified
};

// The draft that a sequence has for the next step.
struct draft_offer {
    uint32_t num_tokens;
    // [skipped + num_tokens] of each token, those that are skipped first: the probability, given
    // those before it.
    float right[1 + DRAFT_TOKENS_MAX];
};

struct drafter {
    struct draft_options options;
    struct draft_costs costs; // of adaptive options
    uint32_t rows_max; // of a step with drafts
    uint32_t turn; // which sequence gets the next row where rows are short
    struct draft_record common; // of all sequences: holds where one has no record of its own
    uint32_t num_learned[DRAFT_CLASSES]; // drafts, until they are many
    double balance; // steps that wrong guesses may cost
    double token_gain; // what a right token of the last step gives
    double num_expected, num_right; // tokens of the last drafts
};

// rows_max: most rows of logits of a step. `costs` are those of a step, with adaptive options.
void drafter_init(struct drafter *drafter, const struct draft_options *options,
                  const struct draft_costs *costs, uint32_t rows_max);
static inline bool drafter_is_on(const struct drafter *drafter) {
    return drafter->options.num_tokens > 0;
}
// Whether a step of num_seqs sequences has no row left for drafts.
static inline bool drafter_has_no_room(const struct drafter *drafter, uint32_t num_seqs) {
    return num_seqs >= drafter->rows_max;
}
// Whether tokens may be guessed for a step of num_seqs sequences. Certain ones
// (drafter_offer_certain) need no balance. drafter_choose cuts them like others where more rows do
// not pay.
static inline bool drafter_may_guess(const struct drafter *drafter, uint32_t num_seqs) {
    if (drafter->options.only_forced) return false;
    if (!drafter->options.is_adaptive) return true;
    return num_seqs <= drafter->costs.seqs_max && drafter->balance >= 0;
}
// Whether the balance allows a guess behind a match of match_len tokens. A part of the balance is
// kept for long matches: guesses behind short ones are often wrong, and must not use up what an
// edited text needs.
bool drafter_may_follow(const struct drafter *drafter, uint32_t match_len);
// The probability that the token behind a match of match_len tokens is right.
float drafter_right(const struct drafter *drafter, const struct draft_record *record,
                    uint32_t match_len);
// An offer of num_tokens (at most DRAFT_TOKENS_MAX) tokens behind a match. The first `skipped` (0
// or 1) tokens behind the match come before them.
struct draft_offer drafter_offer(const struct drafter *drafter, const struct draft_record *record,
                                 uint32_t match_len, uint32_t num_tokens, uint32_t skipped);
// The same where all tokens are certain.
struct draft_offer drafter_offer_certain(uint32_t num_tokens, uint32_t skipped);
// A draft was verified: its first num_right tokens of num_tokens were right.
void drafter_learn(struct drafter *drafter, struct draft_record *record, uint32_t match_len,
                   uint32_t num_tokens, uint32_t num_right);
// A draft was found and not run, because it was not thought to pay. is_right: whether its first
// token came. So drafts that have become better are noticed, and cost nothing till then.
void drafter_learn_seen(struct drafter *drafter, struct draft_record *record, uint32_t match_len,
                        bool is_right);
// A step of decodes alone ran, with num_drafts tokens of drafts. has_waited: it was scheduled only
// after the results of the step before, because drafts were likely.
void drafter_count_step(struct drafter *drafter, uint32_t num_seqs, uint32_t num_drafts,
                        bool has_waited);
// num_right tokens of a draft were right, in the step that was counted last. Call it for each
// draft.
void drafter_gain(struct drafter *drafter, uint32_t num_right);
// Cuts the offers of a step of num_seqs sequences to what is to be drafted. `skipped` tokens of
// each draft come before those that the step could run. Returns their number.
uint32_t drafter_choose(struct drafter *drafter, uint32_t num_seqs, struct draft_offer *offers,
                        uint32_t num_offers, uint32_t skipped);

#endif
