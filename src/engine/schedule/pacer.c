#include "engine/schedule/pacer.h"

#include <math.h>

// What a step's seconds are made of, each with a cost of its own. The solver begins with the first.
// So as long as all prompts have one length, the whole cost of a prompt is put on its tokens, and
// parts are rather too short.
enum factor { PROMPT_TOKENS, PROMPT_CONTEXT, DECODES, DECODE_CONTEXT, CONSTANT, HAS_PROMPT };
// What one unit of each factor is, so that costs are of similar size.
static const double units[PACER_FACTORS] = {256, 256 * 1024.0, 16, 16 * 1024.0, 1, 1};

// Each measured step lowers the weight of all steps before it by this factor.
static const double history_kept = 0.98;
// Sweeps of the solver after a step with a prompt, and after one without. It begins at the last
// costs.
static const int num_sweeps = 32, num_sweeps_decodes = 2;
// With auto a long prompt may take this many times as long as without pacing.
static const double auto_slowdown_max = 1.15;
// A step with a prompt may take this share longer than its decodes alone, whatever the target is.
static const double prompt_share_min = 0.25;
// A missed target is reported after this many steps in a row.
static const uint32_t missed_steps = 8;
// The share of steps that may take longer than the target.
static const double late_share_max = 0.02;
// pacer->excess: how far one step moves it, and its upper bound.
static const double excess_step = 0.05, excess_max = 1.5;
// pacer_class.extra is a running mean. Each step weighs 1 / extra_steps in it, the first ones more.
static const uint32_t extra_steps = 4;
// A step is left out of that mean if it took more than this many times what the fit says, or less
// than the fit's time divided by it.
static const double extra_most = 1.8;
// Least value of `extra`: minus this share of the fit's time.
static const double extra_least = 0.2;
// Each step with a prompt multiplies every `extra` by this, so that a slow size is tried again.
static const double extra_kept = 0.995;
// Sizes count as equally good if they have this share of the best one's prompt tokens a second. The
// largest of them is taken: otherwise a size that only seems better would be taken forever, because
// no other one would be measured.
static const double best_rate_share = 0.95;
// A size that was not measured is tried if its step takes this share of the target or more.
static const double try_share = 0.5;
// The machine counts as slower where this many steps in a row take change_least times as long as
// the fit says, or longer; as faster where they take less than the fit's time divided by it.
static const uint32_t changed_steps = 4;
static const double change_least = 1.2;
// Once there were this many long steps with prompts (try_share), short ones no longer tell of a
// change.
static const uint32_t known_steps = 60;

void pacer_init(struct pacer *pacer, const struct pace_options *options, uint32_t max_num_tokens) {
    *pacer = (struct pacer){.options = *options, .max_num_tokens = max_num_tokens, .excess = 1};
}

static double positions(uint32_t start, uint32_t num_tokens) {
    return num_tokens * (start + num_tokens / 2.0);
}

void step_work_add_decodes(struct step_work *work, uint32_t start, uint32_t num_tokens) {
    work->num_decodes += num_tokens;
    work->decode_context += positions(start, num_tokens);
}

void step_work_take_decode(struct step_work *work, uint32_t start) {
    work->num_decodes--;
    work->decode_context -= positions(start, 1);
}

void step_work_add_prompt(struct step_work *work, uint32_t start, uint32_t num_tokens) {
    work->num_prompt_tokens += num_tokens;
    work->prompt_context += positions(start, num_tokens);
}

static void factors_of(double factors[PACER_FACTORS], const struct step_work *work) {
    const double values[PACER_FACTORS] = {work->num_prompt_tokens,
                                          work->prompt_context,
                                          work->num_decodes,
                                          work->decode_context,
                                          1,
                                          work->num_prompt_tokens > 0};
    for (int i = 0; i < PACER_FACTORS; i++) factors[i] = values[i] / units[i];
}

static double fit_of(const struct pacer *pacer, const struct step_work *work) {
    double factors[PACER_FACTORS], sum = 0;
    factors_of(factors, work);
    for (int i = 0; i < PACER_FACTORS; i++) sum += pacer->costs[i] * factors[i];
    return sum;
}

static uint32_t num_rows(const struct step_work *work) {
    return work->num_prompt_tokens + work->num_decodes;
}

// PACER_CLASSES: none.
static uint32_t class_of(const struct step_work *work) {
    if (!work->num_prompt_tokens) return PACER_CLASSES;
    uint32_t class = (num_rows(work) - 1) / PACER_ROWS;
    return class < PACER_CLASSES ? class : PACER_CLASSES;
}

static double extra_of(const struct pacer *pacer, const struct step_work *work) {
    uint32_t class = class_of(work);
    if (class == PACER_CLASSES) return 0;
    if (pacer->classes[class].num_measured) return pacer->classes[class].extra;
    // Not measured: not less than of the next smaller class.
    while (class > 0 && !pacer->classes[class].num_measured) class --;
    return pacer->classes[class].extra > 0 ? pacer->classes[class].extra : 0;
}

double pacer_predict(const struct pacer *pacer, const struct step_work *work) {
    return fit_of(pacer, work) + extra_of(pacer, work);
}

static void learn_extra(struct pacer *pacer, const struct step_work *work, double seconds) {
    uint32_t index = class_of(work);
    double fit = fit_of(pacer, work), left = seconds - fit;
    if (index == PACER_CLASSES || seconds > extra_most * fit || fit > extra_most * seconds) return;
    struct pacer_class *own = &pacer->classes[index];
    if (own->num_measured < extra_steps) own->num_measured++;
    if (left < -extra_least * fit) left = -extra_least * fit;
    own->extra += (left - own->extra) / own->num_measured;
    // So that the fit comes to explain what all classes have in common.
    for (uint32_t i = 0; i < PACER_CLASSES; i++) pacer->classes[i].extra *= extra_kept;
}

// Least squares with costs >= 0: each cost in turn takes its best value, given the others. Where
// steps are too much alike to tell two costs apart, they stay near what they were.
static void solve(struct pacer *pacer, int num) {
    const struct pacer_equations *both = pacer->equations;
    for (int sweep = 0; sweep < num; sweep++) {
        for (int i = 0; i < PACER_FACTORS; i++) {
            double rest = both[0].sums[i] + both[1].sums[i], own = 0;
            for (int j = 0; j < PACER_FACTORS; j++) {
                double product = both[0].products[i][j] + both[1].products[i][j];
                if (j == i) own = product;
                if (j != i) rest -= product * pacer->costs[j];
            }
            pacer->costs[i] = own > 0 && rest > 0 ? rest / own : 0;
        }
    }
}

// Moves towards the ratio that all but a few steps stay below.
static void learn_excess(struct pacer *pacer, double ratio) {
    pacer->excess +=
        ratio > pacer->excess ? excess_step * (1 - late_share_max) : -excess_step * late_share_max;
    if (pacer->excess > excess_max) pacer->excess = excess_max;
    if (pacer->excess < 1) pacer->excess = 1;
}

// Seconds of the step with its decodes alone.
static double seconds_alone(const struct pacer *pacer, const struct step_work *work) {
    return pacer_predict(pacer, &(struct step_work){.num_decodes = work->num_decodes,
                                                    .decode_context = work->decode_context});
}

// Whether the target cannot be held: several steps in a row were longer, although prompts had the
// smallest part that pacer_budget gives. Returns such a step's time, once; else 0.
static double learn_missed(struct pacer *pacer, const struct step_work *work) {
    if (pacer->options.pace != PACE_TARGET || !work->num_decodes) return 0;
    uint32_t part_min = pacer->options.part_min;
    if (pacer->most_measured < part_min || pacer->num_missed == missed_steps) return 0;
    struct step_work least = *work;
    least.num_prompt_tokens = part_min;
    least.prompt_context *= (double)part_min / work->num_prompt_tokens;
    double seconds = pacer_predict(pacer, &least);
    double bound = seconds_alone(pacer, work) * (1 + prompt_share_min);
    if (seconds < bound) seconds = bound;
    pacer->num_missed = seconds > pacer->options.target_seconds ? pacer->num_missed + 1 : 0;
    return pacer->num_missed == missed_steps ? seconds : 0;
}

// Takes all steps of the equations to have been slower by `change`.
static void change_past(struct pacer *pacer, struct pacer_equations *equations, double change) {
    // The first steps after the change have been taken for what their rows cost.
    for (int i = 0; i < PACER_CLASSES; i++) pacer->classes[i] = (struct pacer_class){0};
    for (int i = 0; i < PACER_FACTORS; i++) {
        for (int j = 0; j < PACER_FACTORS; j++) equations->products[i][j] /= change * change;
        equations->sums[i] /= change;
    }
}

// A step took `ratio` times what the fit said. Returns by how much the machine has changed; 1: not.
static double learn_change(struct pacer_equations *equations, double ratio) {
    bool is_slower = ratio >= change_least, is_faster = ratio <= 1 / change_least;
    bool goes_on = equations->num_changed &&
                   ((is_slower && equations->change > 1) || (is_faster && equations->change < 1));
    if (!goes_on) equations->num_changed = 0;
    if (!is_slower && !is_faster) return 1;
    // Of all of them, the least change.
    bool is_less = is_slower ? ratio < equations->change : ratio > equations->change;
    if (!goes_on || is_less) equations->change = ratio;
    if (++equations->num_changed < changed_steps) return 1;
    equations->num_changed = 0;
    return equations->change;
}

// Whether a step may show that the machine has changed. `longer`: of its measured and its predicted
// seconds. Short steps tell little of long ones: most of their time is what a step costs besides
// its rows.
static bool tells_change(struct pacer *pacer, const struct step_work *work, double longer,
                         bool is_new) {
    bool has_prompt = work->num_prompt_tokens > 0;
    bool is_long = longer >= try_share * pacer->options.target_seconds;
    bool is_known = pacer->num_long == known_steps;
    if (has_prompt && is_long && !is_known) pacer->num_long++;
    return !is_new && !(has_prompt && is_known && !is_long);
}

// Adds a step to the equations and solves them. Its error counts relative to `longer`, so that a
// step measured too short, or too long, counts as one of many.
static void fit_step(struct pacer *pacer, const struct step_work *work, double seconds,
                     double longer, int sweeps) {
    struct pacer_equations *equations = &pacer->equations[work->num_prompt_tokens > 0];
    double factors[PACER_FACTORS], fitted = seconds - extra_of(pacer, work);
    if (fitted < seconds / 2 || fitted > seconds * 2) fitted = seconds;
    factors_of(factors, work);
    for (int i = 0; i < PACER_FACTORS; i++) {
        for (int j = 0; j < PACER_FACTORS; j++) {
            double *product = &equations->products[i][j];
            *product = history_kept * *product + factors[i] * factors[j] / (longer * longer);
        }
        double own = factors[i] * fitted / (longer * longer);
        equations->sums[i] = history_kept * equations->sums[i] + own;
    }
    solve(pacer, sweeps);
}

double pacer_measure(struct pacer *pacer, const struct step_work *work, double seconds) {
    double predicted = pacer_predict(pacer, work);
    if (pacer->options.pace == PACE_OFF || !(seconds > 0)) return 0;
    double longer = seconds > predicted ? seconds : predicted;
    struct pacer_equations *equations = &pacer->equations[work->num_prompt_tokens > 0];
    uint32_t class = class_of(work);
    bool is_new = class < PACER_CLASSES && !pacer->classes[class].num_measured;
    bool differs = seconds >= change_least * predicted || predicted >= change_least * seconds;
    bool is_told = tells_change(pacer, work, longer, is_new) && predicted > 0;
    double change = is_told ? learn_change(equations, seconds / predicted) : 1;
    if (change != 1) change_past(pacer, equations, change);
    bool solves_anew = work->num_prompt_tokens || change != 1;
    fit_step(pacer, work, seconds, longer, solves_anew ? num_sweeps : num_sweeps_decodes);
    if (!work->num_prompt_tokens) return 0;
    if (is_new || !differs) learn_extra(pacer, work, seconds);
    // A step that was not sized for the target may take longer than expected and still be within
    // it. That needs no margin.
    bool is_over = seconds > pacer->options.target_seconds;
    if (predicted > 0 && work->num_decodes) learn_excess(pacer, is_over ? seconds / predicted : 1);
    if (change > 1) pacer->excess = 1; // what was above the fit was the change
    if (work->num_prompt_tokens > pacer->most_measured) {
        pacer->most_measured = work->num_prompt_tokens;
    }
    return learn_missed(pacer, work);
}

// The step with num_tokens of a prompt besides.
static struct step_work with_prompt(const struct step_work *work, uint32_t start,
                                    uint32_t num_tokens) {
    struct step_work with = *work;
    step_work_add_prompt(&with, start, num_tokens);
    return with;
}

// The most tokens from least to `most`, all in one class, with which the step takes `seconds` or
// less. 0: none.
static uint32_t most_within(const struct pacer *pacer, const struct step_work *work, uint32_t start,
                            uint32_t least, uint32_t most, double seconds) {
    uint32_t low = least - 1, high = most;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        struct step_work with = with_prompt(work, start, middle);
        if (pacer_predict(pacer, &with) <= seconds) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    if (low < most && low >= 4 * PACER_STEP) low -= low % PACER_STEP;
    return low < least ? 0 : low;
}

// The end of the class of steps that the next token would be in, as tokens of the prompt.
static uint32_t class_end(const struct step_work *work, uint32_t num_tokens, uint32_t most) {
    uint32_t rows = num_rows(work) + num_tokens + 1;
    uint64_t end = ((uint64_t)rows + PACER_ROWS - 1) / PACER_ROWS * PACER_ROWS - num_rows(work);
    return end < most ? (uint32_t)end : most;
}

// Of the numbers of tokens, up to `most`, with which the step stays within the target, the largest
// one with nearly the most prompt tokens a second.
static uint32_t budget_of_target(const struct pacer *pacer, const struct step_work *work,
                                 uint32_t start, uint32_t most) {
    double target = pacer->options.target_seconds / pacer->excess, best_rate = 0;
    double least = seconds_alone(pacer, work) * (1 + prompt_share_min);
    uint32_t best = 0;
    if (target < least) target = least;
    for (uint32_t end = 0, begin; end < most;) {
        begin = end + 1;
        end = class_end(work, end, most);
        uint32_t num_tokens = most_within(pacer, work, start, begin, end, target);
        if (!num_tokens) continue;
        struct step_work with = with_prompt(work, start, num_tokens);
        double seconds = pacer_predict(pacer, &with), rate = with.num_prompt_tokens / seconds;
        uint32_t class = class_of(&with);
        bool is_new = class < PACER_CLASSES && !pacer->classes[class].num_measured;
        if (is_new && seconds >= try_share * target) rate = HUGE_VAL;
        if (rate < best_rate_share * best_rate) continue;
        if (rate > best_rate) best_rate = rate;
        best = num_tokens;
    }
    return best;
}

// Prompt tokens a second of a step.
static double rate_of(const struct pacer *pacer, const struct step_work *work, uint32_t start,
                      uint32_t num_tokens) {
    struct step_work with = with_prompt(work, start, num_tokens);
    return with.num_prompt_tokens / pacer_predict(pacer, &with);
}

// The fewest tokens from least to `most`, all in one class, with which prompts run at that rate, as
// they do with `most`.
static uint32_t least_at_rate(const struct pacer *pacer, const struct step_work *work,
                              uint32_t start, uint32_t least, uint32_t most, double rate) {
    while (least < most) {
        uint32_t middle = least + (most - least) / 2;
        if (rate_of(pacer, work, start, middle) >= rate) {
            most = middle;
        } else {
            least = middle + 1;
        }
    }
    return least;
}

// As with the target, or longer, so that prompts take `slower` times as long as in unpaced steps at
// most.
static uint32_t budget_of_auto(const struct pacer *pacer, const struct step_work *work,
                               uint32_t start, uint32_t most) {
    const struct step_work alone = {.num_decodes = work->num_decodes,
                                    .decode_context = work->decode_context};
    uint32_t longest = pacer->max_num_tokens - work->num_decodes;
    double enough = rate_of(pacer, &alone, start, longest) / auto_slowdown_max;
    uint32_t end = budget_of_target(pacer, work, start, most);
    if (end == most || rate_of(pacer, work, start, end) >= enough) return end;
    for (uint32_t begin; end < most;) {
        begin = end + 1;
        end = class_end(work, end, most);
        if (rate_of(pacer, work, start, end) < enough) continue;
        return least_at_rate(pacer, work, start, begin, end, enough);
    }
    return most;
}

uint32_t pacer_budget(const struct pacer *pacer, const struct step_work *work, uint32_t start,
                      uint32_t most) {
    uint32_t budget = most, trusted = 2 * pacer->most_measured, used = work->num_prompt_tokens;
    if (pacer->options.pace == PACE_OFF || !work->num_decodes) return most;
    trusted = trusted > used ? trusted - used : 0;
    if (budget > trusted) budget = trusted;
    if (pacer->options.pace == PACE_TARGET) budget = budget_of_target(pacer, work, start, budget);
    if (pacer->options.pace == PACE_AUTO) budget = budget_of_auto(pacer, work, start, budget);
    if (budget >= most) return most;
    uint32_t part_min = pacer->options.part_min;
    if (budget && budget >= part_min) return budget;
    if (used) return 0;
    return most < part_min ? most : part_min;
}
