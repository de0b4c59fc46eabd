/* Decides how many tokens are drafted. Pure: no clock, no text.
 *
 * A step that also runs drafts takes longer, and brings more tokens where they are right. Two
 * things are measured while the engine runs:
 * - how often a draft's next token was right, given that those before it were: for each sequence,
 *   by how many tokens had matched;
 * - the seconds from one step's results to the next one's, by the number of rows, for steps with
 *   drafts and for others. Where steps overlap, a step with drafts waits for the results before it,
 *   and the step after waits for its own. So does a step for which drafts were likely and that has
 *   none then. What all of these lose counts as seconds of the next step with drafts;
 * - how many tokens were right of those that were expected to be. The drafts that are taken are
 *   those whose probability is thought to be high, so it is rather overestimated.
 * Steps without drafts are measured for each number of sequences, and again from time to time:
 * their contexts grow, so old figures say little.
 *
 * With n sequences, a step without drafts brings n tokens in t(n). With the m most probable tokens
 * of all drafts it brings n + e(m) in u(n + m), where e is the sum of their probabilities. The m
 * with the most tokens a second is taken, if that is more than without drafts.
 *
 * An account bounds what wrong guesses cost, whatever the text is. Its unit is the time of a step
 * without drafts, t(n). A step with drafts, or one that waited for some, takes seconds / t(n) - 1
 * from it, and a right token gives 1 / n. Each step gives a small share of itself. Nothing is
 * guessed while the balance is below 0, so the loss is that share at most, and a few steps at the
 * beginning. */
#ifndef ENGINE_DRAFT_DRAFTER_H
#define ENGINE_DRAFT_DRAFTER_H

#include "engine/draft/draft_options.h"

enum {
    DRAFT_CLASSES = 5, // of matches, by their length
    DRAFT_SIZES = 9, // of steps: 1, 2, 3 .. 4, 5 .. 8, ..., 129 .. 256 rows
    DRAFT_SEQS_MAX = 63, // more sequences in a step, and `auto` guesses nothing
    DRAFT_LEVELS = 64, // of probabilities
};

// The probability that a token of a draft is right if all before it are, by the match's class.
struct draft_record {
    float right[DRAFT_CLASSES]; // 0: of this class no draft was verified
};

// The draft that a sequence has for the next step.
struct draft_offer {
    uint32_t num_tokens;
    float right; // probability of each, given those before it
};

struct drafter {
    struct draft_options options;
    uint32_t rows_max; // of a step with drafts
    uint32_t turn; // which sequence gets the next row where rows are short
    struct draft_record common; // of all sequences: holds where one has no record of its own
    uint32_t num_learned[DRAFT_CLASSES]; // drafts, until they are many
    // Steps without drafts, by their sequences.
    struct draft_alone {
        double seconds;
        uint32_t num_measured; // until they are enough; 0: the seconds are not known
        uint32_t step; // the last one
    } alone[DRAFT_AUTO_ROWS_MAX + 1];
    // Steps with drafts, by their size.
    struct draft_cost {
        double seconds, num_rows; // of a step
        uint32_t num_measured; // until they are enough
        double doubt; // below 1: the seconds may have become fewer since they were measured
    } costs[DRAFT_SIZES];
    uint32_t num_steps; // measured; wraps around
    double lost; // seconds, by waiting, since the last step with drafts
    double balance; // steps that wrong guesses may cost
    double token_gain; // what a right token of the last step gives
    double num_expected, num_right; // tokens of the last drafts
};

// rows_max: most rows of logits of a step.
void drafter_init(struct drafter *drafter, const struct draft_options *options, uint32_t rows_max);
static inline bool drafter_is_on(const struct drafter *drafter) {
    return drafter->options.num_tokens > 0;
}
// Whether a step of so many sequences has no drafts, whatever they are.
static inline bool drafter_has_no_room(const struct drafter *drafter, uint32_t num_seqs) {
    bool guesses = drafter->options.is_adaptive && !drafter->options.only_forced;
    return num_seqs >= drafter->rows_max || (guesses && num_seqs > DRAFT_SEQS_MAX);
}
// Whether drafts may be guessed. Those that are right for certain need no balance. drafter_choose
// cuts them like others: to none while a step without drafts is to be measured first, and where
// more rows do not pay.
static inline bool drafter_may_guess(const struct drafter *drafter) {
    return !drafter->options.only_forced &&
           (!drafter->options.is_adaptive || drafter->balance >= 0);
}
// The probability for a draft behind a match of so many tokens.
float drafter_right(const struct drafter *drafter, const struct draft_record *record,
                    uint32_t match_len);
// A draft was verified: its first num_right tokens of num_tokens were right.
void drafter_learn(struct drafter *drafter, struct draft_record *record, uint32_t match_len,
                   uint32_t num_tokens, uint32_t num_right);
// A step of decodes alone took so long, from the results before it to its own.
void drafter_measure(struct drafter *drafter, uint32_t num_seqs, uint32_t num_drafts,
                     double seconds);
// A step of num_seqs sequences waited for the results before it because of drafts, and has none.
void drafter_measure_waiting(struct drafter *drafter, uint32_t num_seqs, double seconds);
// So many drafted tokens of the step that was measured last were right. Call it for each draft.
void drafter_gain(struct drafter *drafter, uint32_t num_right);
// Cuts the offers of a step of num_seqs sequences to what is to be drafted. `skipped` tokens of
// each draft come before those that the step could run. Returns their number.
uint32_t drafter_choose(struct drafter *drafter, uint32_t num_seqs, struct draft_offer *offers,
                        uint32_t num_offers, uint32_t skipped);

#endif
