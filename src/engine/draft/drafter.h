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
 *
 * With n sequences, a step without drafts brings n tokens in t(n). With the m most probable tokens
 * of all drafts it brings n + e(m) in u(n + m), where e is the sum of their probabilities. The m
 * with the most tokens a second is taken, if that is more than without drafts. */
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
    float right[DRAFT_CLASSES];
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
    struct draft_record common; // of all sequences: a new one begins with it
    // Steps without drafts and with, by their size.
    struct draft_cost {
        double seconds; // 0: not measured
        double num_rows; // that took so long
        double doubt; // below 1: the seconds may have become fewer since they were measured
    } costs[2][DRAFT_SIZES];
    double lost; // seconds, by waiting, since the last step with drafts
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
// The probability for a draft behind a match of so many tokens.
float draft_record_right(const struct draft_record *record, uint32_t match_len);
// A draft was verified: its first num_right tokens of num_tokens were right.
void drafter_learn(struct drafter *drafter, struct draft_record *record, uint32_t match_len,
                   uint32_t num_tokens, uint32_t num_right);
// A step of decodes alone took so long, from the results before it to its own. It had num_rows
// rows, drafts included.
void drafter_measure(struct drafter *drafter, uint32_t num_rows, bool has_drafts, double seconds);
// A step of num_rows sequences waited for the results before it because of drafts, and has none.
void drafter_measure_waiting(struct drafter *drafter, uint32_t num_rows, double seconds);
// Cuts the offers of a step of num_seqs sequences to what is to be drafted. `skipped` tokens of
// each draft come before those that the step could run. Returns their number.
uint32_t drafter_choose(struct drafter *drafter, uint32_t num_seqs, struct draft_offer *offers,
                        uint32_t num_offers, uint32_t skipped);

#endif
