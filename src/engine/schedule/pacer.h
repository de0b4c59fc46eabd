/* Sizes the parts of prompts so that other sequences get their tokens steadily. Pure: no clock.
 *
 * A step that runs a part of a prompt beside decodes takes longer, and all its decodes wait for it.
 * The pacer is told the seconds of the steps that ran, and fits
 *
 *   seconds = c0 * prompt tokens + c1 * their context
 *           + c2 * decodes + c3 * their context + c4 + (c5 if it has prompt tokens),  all c >= 0
 *
 * by least squares. An error counts relative to the longer of the measured and the predicted time,
 * so that one wrong time moves little. Each step weighs a little less than the next one of its
 * kind, with prompts or without. Where several steps of a kind in a row took much longer than the
 * fit says, or much less, all before them are taken to have done so too: the machine has become
 * slower or faster. Short steps with prompts do not tell that, once there were many long ones. The
 * context is the sum of the tokens' positions: attention's work.
 *
 * Kernels compute rows in tiles, and tiles in waves, so a step of 1,280 rows may take twice as long
 * as one of 1,024. So what the fit leaves over of steps with prompts is kept by their rows, in
 * classes of PACER_ROWS, and added. The fit gets the times without it.
 *
 * With that the pacer finds how many tokens of a prompt the next step has room for:
 *
 * - a target: the step takes at most so long. Of all sizes that do, it is the largest one with
 *   nearly the most prompt tokens a second. Where decodes alone take nearly that long, it takes a
 *   quarter longer than they do.
 * - auto: the same, but a long prompt takes at most 1.15 times as long as in steps of
 *   max_num_batched_tokens, by the fit. What a step costs besides its prompt tokens is paid for
 *   each part. Where that is much, parts are as long as that demands, and steps take longer.
 *
 * A step never runs more than twice as many prompt tokens as any step that was measured, so the fit
 * is not trusted far from what it has seen. A part has part_min tokens or more, so a prompt always
 * gets on. Where nothing decodes, there is no limit. */
#ifndef ENGINE_SCHEDULE_PACER_H
#define ENGINE_SCHEDULE_PACER_H

#include <stdbool.h>
#include <stdint.h>

enum {
    PACER_PART_MIN = 64, // of the option target_itl
    PACER_STEP = 16, // parts of several of it are multiples
    PACER_FACTORS = 6,
    PACER_ROWS = 128, // of a class of steps' sizes
    PACER_CLASSES = 128, // longer steps are in none
};

enum pace { PACE_OFF, PACE_AUTO, PACE_TARGET };

struct pace_options {
    enum pace pace;
    double target_seconds; // of a step
    uint32_t part_min; // fewest tokens of a part, unless fewer are left
};

// What a step computes.
struct step_work {
    uint32_t num_prompt_tokens;
    uint32_t num_decodes; // and drafts
    double prompt_context, decode_context; // sums of positions
};

struct pacer {
    struct pace_options options;
    uint32_t max_num_tokens; // of a step
    uint32_t most_measured; // prompt tokens of the longest step that was measured
    // The fit's normal equations: of steps without prompts, and with.
    struct pacer_equations {
        double products[PACER_FACTORS][PACER_FACTORS];
        double sums[PACER_FACTORS];
        uint32_t num_changed; // steps of this kind in a row that differ from the fit to one side
        double change; // of them, the time nearest to the fit, as a share of what the fit said
    } equations[2];
    double costs[PACER_FACTORS]; // c, per unit (pacer.c)
    // Seconds of steps with prompts that the fit leaves over.
    struct pacer_class {
        double extra;
        uint32_t num_measured; // until they are many
    } classes[PACER_CLASSES];
    uint32_t num_long; // steps with prompts that took long; until they are many
    uint32_t num_missed; // steps in a row that even the shortest part made longer than the target
    // The share of steps that take longer than the target, and than this times the fit, is small.
    double excess;
};

void pacer_init(struct pacer *pacer, const struct pace_options *options, uint32_t max_num_tokens);
// Adds a sequence's tokens from position `start` on. step_work_take_decode takes one back.
void step_work_add_decodes(struct step_work *work, uint32_t start, uint32_t num_tokens);
void step_work_take_decode(struct step_work *work, uint32_t start);
void step_work_add_prompt(struct step_work *work, uint32_t start, uint32_t num_tokens);
// A step took so long, from the end of the step before to its own. 0: not known, and nothing is
// learnt. Returns what steps with decodes and the shortest part of a prompt take, when that was
// longer than the target for several steps in a row. Once; else 0.
double pacer_measure(struct pacer *pacer, const struct step_work *work, double seconds);
// How many tokens of a prompt from position `start` on, at most `most` (1 or more), the step may
// run besides. 0: none, because it has others'.
uint32_t pacer_budget(const struct pacer *pacer, const struct step_work *work, uint32_t start,
                      uint32_t most);
// Seconds of a step, as they are expected. 0: nothing was measured.
double pacer_predict(const struct pacer *pacer, const struct step_work *work);

#endif
