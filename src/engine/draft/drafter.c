#include "engine/draft/drafter.h"

#include <math.h>

#include "base/check.h"

// Shortest matches of the classes, and what is assumed of each before anything was verified.
static const uint32_t shortest[DRAFT_CLASSES] = {0, 3, 4, 6, 10};
static const float assumed[DRAFT_CLASSES] = {0.3f, 0.5f, 0.6f, 0.8f, 0.9f};

// Weights of new measurements.
static const float record_weight = 1.0f / 8, common_weight = 1.0f / 64;
static const double slower_weight = 0.25, faster_weight = 0.5;
static const double outlier = 4; // times as long as before counts as so many
// A step with drafts must be better than without by this, because both are measured with noise.
static const double margin = 1.02;
// What was slow once is tried again after some hundred steps.
static const double forget = 1.0 / 512;

void drafter_init(struct drafter *drafter, const struct draft_options *options, uint32_t rows_max) {
    *drafter = (struct drafter){.options = *options, .rows_max = rows_max};
    if (options->is_adaptive && rows_max > DRAFT_ROWS_MAX) drafter->rows_max = DRAFT_ROWS_MAX;
    for (int i = 0; i < DRAFT_CLASSES; i++) drafter->common.right[i] = assumed[i];
}

static int class_of(uint32_t match_len) {
    int class = DRAFT_CLASSES - 1;
    while (match_len < shortest[class]) class --;
    return class;
}

float draft_record_right(const struct draft_record *record, uint32_t match_len) {
    return record->right[class_of(match_len)];
}

static void learn(float *right, float weight, uint32_t num_tokens, uint32_t num_right) {
    for (uint32_t i = 0; i < num_right; i++) *right += weight * (1 - *right);
    if (num_right < num_tokens) *right -= weight * *right;
}

void drafter_learn(struct drafter *drafter, struct draft_record *record, uint32_t match_len,
                   uint32_t num_tokens, uint32_t num_right) {
    int class = class_of(match_len);
    learn(&record->right[class], record_weight, num_tokens, num_right);
    learn(&drafter->common.right[class], common_weight, num_tokens, num_right);
}

static int size_of(uint32_t num_rows) {
    int size = 0;
    while (size < DRAFT_SIZES - 1 && 1u << size < num_rows) size++;
    return size;
}

void drafter_measure(struct drafter *drafter, uint32_t num_rows, bool has_drafts, double seconds) {
    if (num_rows > 1u << (DRAFT_SIZES - 1)) return;
    double *mean = &drafter->seconds[has_drafts][size_of(num_rows)];
    if (*mean == 0) {
        *mean = seconds;
        return;
    }
    if (seconds > outlier * *mean) seconds = outlier * *mean;
    *mean += (seconds > *mean ? slower_weight : faster_weight) * (seconds - *mean);
}

// The seconds of a step with drafts. Where none of its size was measured, those of a smaller one:
// so each size is tried once.
static double seconds_of(const struct drafter *drafter, int size, double at_least) {
    for (; size > 0; size--) {
        double seconds = drafter->seconds[1][size];
        if (seconds > 0) return seconds;
    }
    return at_least;
}

// How many tokens of all drafts have each level of probability.
struct levels {
    uint32_t num_tokens[DRAFT_LEVELS + 1];
};

static uint32_t level_of(float probability) {
    return (uint32_t)(probability * DRAFT_LEVELS + 0.5f);
}

static void count_levels(struct levels *levels, const struct draft_offer *offers,
                         uint32_t num_offers, uint32_t skipped) {
    *levels = (struct levels){0};
    for (uint32_t i = 0; i < num_offers; i++) {
        float probability = powf(offers[i].right, (float)skipped);
        for (uint32_t k = 0; k < offers[i].num_tokens; k++) {
            probability *= offers[i].right;
            levels->num_tokens[level_of(probability)]++;
        }
    }
}

// The sum of the `num` highest probabilities. *lowest: the level of the last one.
static double sum_of_best(const struct levels *levels, uint32_t num, uint32_t *lowest) {
    double sum = 0;
    for (uint32_t level = DRAFT_LEVELS; level > 0 && num; level--) {
        uint32_t here = levels->num_tokens[level];
        if (!here) continue;
        uint32_t taken = here < num ? here : num;
        sum += taken * (double)level / DRAFT_LEVELS;
        num -= taken;
        *lowest = level;
    }
    return sum;
}

// Keeps up to num_rows tokens whose probabilities have at least this level.
static uint32_t cut_offers(struct draft_offer *offers, uint32_t num_offers, uint32_t skipped,
                           uint32_t lowest, uint32_t num_rows) {
    uint32_t num_taken = 0;
    for (uint32_t i = 0; i < num_offers; i++) {
        float probability = powf(offers[i].right, (float)skipped);
        uint32_t k = 0;
        for (; k < offers[i].num_tokens && num_taken < num_rows; k++, num_taken++) {
            probability *= offers[i].right;
            if (level_of(probability) < lowest) break;
        }
        offers[i].num_tokens = k;
    }
    return num_taken;
}

static uint32_t choose_adaptive(struct drafter *drafter, uint32_t num_seqs,
                                struct draft_offer *offers, uint32_t num_offers, uint32_t skipped) {
    int own = size_of(num_seqs);
    double alone = drafter->seconds[0][own];
    if (alone <= 0) return cut_offers(offers, num_offers, 0, 0, 0); // to be measured first
    struct levels levels;
    count_levels(&levels, offers, num_offers, skipped);
    double best = num_seqs / alone * margin;
    uint32_t num_rows = 0, lowest = 0;
    for (int size = own; size < DRAFT_SIZES && 1u << size <= drafter->rows_max; size++) {
        uint32_t num_drafted = (1u << size) - num_seqs, level = 0;
        if (!num_drafted) continue;
        double sum = sum_of_best(&levels, num_drafted, &level);
        double rate = (num_seqs + sum) / seconds_of(drafter, size, alone);
        if (rate <= best) {
            drafter->seconds[1][size] *= 1 - forget;
            continue;
        }
        best = rate;
        num_rows = num_drafted;
        lowest = level;
    }
    return cut_offers(offers, num_offers, skipped, lowest, num_rows);
}

uint32_t drafter_choose(struct drafter *drafter, uint32_t num_seqs, struct draft_offer *offers,
                        uint32_t num_offers, uint32_t skipped) {
    uint32_t rows_left = num_seqs < drafter->rows_max ? drafter->rows_max - num_seqs : 0;
    if (rows_left && drafter->options.is_adaptive) {
        return choose_adaptive(drafter, num_seqs, offers, num_offers, skipped);
    }
    return cut_offers(offers, num_offers, 0, 0, rows_left);
}
