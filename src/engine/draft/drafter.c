#include "engine/draft/drafter.h"

#include "base/check.h"

// Matches are counted in classes by their length: the shortest match of each class, and the
// probability that is assumed until drafts behind such matches were verified.
static const uint32_t shortest[DRAFT_CLASSES] = {0, 2, 3, 4, 6, 10};
static const float assumed[DRAFT_CLASSES] = {0.2f, 0.3f, 0.5f, 0.6f, 0.8f, 0.9f};

// Weights of a new measurement in the running means of one sequence, and of all together.
static const float record_weight = 1.0f / 16, common_weight = 1.0f / 64;
// The account (drafter.h), in steps: its balance at the beginning, its bounds, what each step adds.
static const double balance_begin = 3, balance_max = 6, balance_min = -4, balance_share = 0.01;
// Drafts behind short matches may not bring the balance below this.
static const double reserve = 2;
// A step with drafts must be better than one without by this factor, because the costs were
// measured with models of other shapes.
static const double margin = 1.02;
// num_right / num_expected: each new draft multiplies the counts by trust_kept. Both begin at
// trust_begin tokens, as if so many had been right.
static const double trust_kept = 255.0 / 256, trust_begin = 16;

void drafter_init(struct drafter *drafter, const struct draft_options *options,
                  const struct draft_costs *costs, uint32_t rows_max) {
    *drafter = (struct drafter){.options = *options, .costs = *costs, .rows_max = rows_max};
    if (options->is_adaptive && rows_max > DRAFT_AUTO_ROWS_MAX) {
        drafter->rows_max = DRAFT_AUTO_ROWS_MAX;
    }
    drafter->num_expected = drafter->num_right = trust_begin;
    drafter->balance = balance_begin;
    for (int i = 0; i < DRAFT_CLASSES; i++) drafter->common.right[i] = assumed[i];
}

static int class_of(uint32_t match_len) {
    int class = DRAFT_CLASSES - 1;
    while (match_len < shortest[class]) class --;
    return class;
}

float drafter_right(const struct drafter *drafter, const struct draft_record *record,
                    uint32_t match_len) {
    int class = class_of(match_len);
    return record->right[class] > 0 ? record->right[class] : drafter->common.right[class];
}

struct draft_offer drafter_offer(const struct drafter *drafter, const struct draft_record *record,
                                 uint32_t match_len, uint32_t num_tokens, uint32_t skipped) {
    struct draft_offer offer = {.num_tokens = num_tokens};
    for (uint32_t i = 0; i < skipped + num_tokens; i++) {
        offer.right[i] = drafter_right(drafter, record, match_len + i);
    }
    return offer;
}

struct draft_offer drafter_offer_certain(uint32_t num_tokens, uint32_t skipped) {
    struct draft_offer offer = {.num_tokens = num_tokens};
    for (uint32_t i = 0; i < skipped + num_tokens; i++) offer.right[i] = 1;
    return offer;
}

bool drafter_may_follow(const struct drafter *drafter, uint32_t match_len) {
    bool is_long = class_of(match_len) == DRAFT_CLASSES - 1;
    return !drafter->options.is_adaptive || is_long || drafter->balance >= reserve;
}

static void learn(float *right, float weight, bool is_right) {
    *right += weight * ((is_right ? 1.0f : 0.0f) - *right);
}

static void learn_token(struct drafter *drafter, struct draft_record *record, uint32_t match_len,
                        bool is_right) {
    int class = class_of(match_len);
    record->right[class] = drafter_right(drafter, record, match_len);
    learn(&record->right[class], record_weight, is_right);
    // The first tokens of all sequences weigh as much as those of one.
    float weight = 1.0f / (1 / record_weight + (float)drafter->num_learned[class]);
    if (weight > common_weight) {
        drafter->num_learned[class]++;
    } else {
        weight = common_weight;
    }
    learn(&drafter->common.right[class], weight, is_right);
}

void drafter_learn(struct drafter *drafter, struct draft_record *record, uint32_t match_len,
                   uint32_t num_tokens, uint32_t num_right) {
    double probability = 1, expected = 0;
    for (uint32_t i = 0; i < num_tokens; i++) {
        probability *= (double)drafter_right(drafter, record, match_len + i);
        expected += probability;
    }
    drafter->num_expected = trust_kept * drafter->num_expected + expected;
    drafter->num_right = trust_kept * drafter->num_right + num_right;
    // Tokens behind the first wrong one tell nothing: they were guessed from it.
    for (uint32_t i = 0; i < num_tokens && i <= num_right; i++) {
        learn_token(drafter, record, match_len + i, i < num_right);
    }
}

void drafter_learn_seen(struct drafter *drafter, struct draft_record *record, uint32_t match_len,
                        bool is_right) {
    int class = class_of(match_len);
    record->right[class] = drafter_right(drafter, record, match_len);
    learn(&record->right[class], record_weight, is_right);
    learn(&drafter->common.right[class], common_weight, is_right);
    drafter->num_expected += (1 - trust_kept) * (trust_begin - drafter->num_expected);
    drafter->num_right += (1 - trust_kept) * (trust_begin - drafter->num_right);
}

static void add_to_balance(struct drafter *drafter, double num_steps) {
    drafter->balance += num_steps;
    if (drafter->balance > balance_max) drafter->balance = balance_max;
    if (drafter->balance < balance_min) drafter->balance = balance_min;
}

void drafter_count_step(struct drafter *drafter, uint32_t num_seqs, uint32_t num_drafts,
                        bool has_waited) {
    double more = draft_costs_more(&drafter->costs, num_seqs, num_drafts, has_waited);
    add_to_balance(drafter, balance_share - more);
    drafter->token_gain = 1.0 / num_seqs;
}

void drafter_gain(struct drafter *drafter, uint32_t num_right) {
    add_to_balance(drafter, num_right * drafter->token_gain);
}

// How many tokens of all drafts have each level of probability.
struct levels {
    uint32_t num_tokens[DRAFT_LEVELS + 1];
};

static uint32_t level_of(float probability) {
    return (uint32_t)(probability * DRAFT_LEVELS + 0.5f);
}

static float skipped_right(const struct draft_offer *offer, uint32_t skipped) {
    float probability = 1;
    for (uint32_t i = 0; i < skipped; i++) probability *= offer->right[i];
    return probability;
}

static void count_levels(struct levels *levels, const struct draft_offer *offers,
                         uint32_t num_offers, uint32_t skipped) {
    *levels = (struct levels){0};
    for (uint32_t i = 0; i < num_offers; i++) {
        float probability = skipped_right(&offers[i], skipped);
        for (uint32_t k = 0; k < offers[i].num_tokens; k++) {
            probability *= offers[i].right[skipped + k];
            levels->num_tokens[level_of(probability)]++;
        }
    }
}

// The sum of the *num highest probabilities. *lowest: the level of the last one. *num becomes how
// many there are.
static double sum_of_best(const struct levels *levels, uint32_t *num, uint32_t *lowest) {
    double sum = 0;
    uint32_t left = *num;
    for (uint32_t level = DRAFT_LEVELS; level > 0 && left; level--) {
        uint32_t here = levels->num_tokens[level];
        if (!here) continue;
        uint32_t taken = here < left ? here : left;
        sum += taken * (double)level / DRAFT_LEVELS;
        left -= taken;
        *lowest = level;
    }
    *num -= left;
    return sum;
}

static uint32_t sum_up_to(const struct draft_offer *offers, uint32_t num_offers, uint32_t most) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < num_offers; i++) {
        sum += offers[i].num_tokens < most ? offers[i].num_tokens : most;
    }
    return sum;
}

// Shares num_rows rows out evenly: each draft is cut at one length, and what is left over goes, a
// token each, to those whose turn it is.
static uint32_t share_rows(struct drafter *drafter, struct draft_offer *offers, uint32_t num_offers,
                           uint32_t num_rows) {
    uint32_t most = 0, sum = sum_up_to(offers, num_offers, UINT32_MAX);
    if (sum <= num_rows) return sum;
    while (sum_up_to(offers, num_offers, most + 1) <= num_rows) most++;
    uint32_t left = num_rows - sum_up_to(offers, num_offers, most), turn = drafter->turn;
    for (uint32_t n = 0; n < num_offers; n++) {
        struct draft_offer *offer = &offers[(turn + n) % num_offers];
        if (offer->num_tokens <= most) continue;
        offer->num_tokens = most;
        if (!left) continue;
        offer->num_tokens++;
        left--;
        drafter->turn = turn + n + 1;
    }
    return num_rows;
}

// Keeps the num_rows most probable tokens, of which the last one has the level `lowest`. All tokens
// above that level are among them. Those of that level share the other rows.
static uint32_t keep_best(struct drafter *drafter, struct draft_offer *offers, uint32_t num_offers,
                          uint32_t skipped, uint32_t lowest, uint32_t num_rows) {
    uint32_t left = num_rows, num_sure[DRAFT_AUTO_ROWS_MAX];
    CHECK(num_offers <= DRAFT_AUTO_ROWS_MAX, "%u offers", num_offers);
    for (uint32_t i = 0; i < num_offers; i++) {
        struct draft_offer *offer = &offers[i];
        float probability = skipped_right(offer, skipped);
        uint32_t k = 0;
        num_sure[i] = 0;
        for (; k < offer->num_tokens; k++) {
            probability *= offer->right[skipped + k];
            uint32_t level = level_of(probability);
            if (level < lowest) break;
            num_sure[i] += level > lowest;
        }
        offer->num_tokens = k - num_sure[i];
        left -= num_sure[i];
    }
    share_rows(drafter, offers, num_offers, left);
    for (uint32_t i = 0; i < num_offers; i++) offers[i].num_tokens += num_sure[i];
    return num_rows;
}

static uint32_t choose_adaptive(struct drafter *drafter, uint32_t num_seqs,
                                struct draft_offer *offers, uint32_t num_offers, uint32_t skipped) {
    struct levels levels;
    count_levels(&levels, offers, num_offers, skipped);
    double best = num_seqs * margin;
    double trust = drafter->num_right / drafter->num_expected;
    if (trust > 1) trust = 1;
    uint32_t num_rows = 0, lowest = 0, num_before = 0;
    for (uint32_t size = 2; size <= drafter->rows_max; size *= 2) {
        if (size <= num_seqs) continue;
        uint32_t num_drafted = size - num_seqs, level = 0;
        double sum = sum_of_best(&levels, &num_drafted, &level);
        if (num_drafted == num_before) break; // all that is offered
        num_before = num_drafted;
        double more = draft_costs_more(&drafter->costs, num_seqs, num_drafted, skipped > 0);
        double rate = (num_seqs + trust * sum) / (1 + more);
        if (rate <= best) continue;
        best = rate;
        num_rows = num_drafted;
        lowest = level;
    }
    if (!num_rows) return share_rows(drafter, offers, num_offers, 0);
    return keep_best(drafter, offers, num_offers, skipped, lowest, num_rows);
}

uint32_t drafter_choose(struct drafter *drafter, uint32_t num_seqs, struct draft_offer *offers,
                        uint32_t num_offers, uint32_t skipped) {
    bool has_room = !drafter_has_no_room(drafter, num_seqs);
    uint32_t rows_left = has_room ? drafter->rows_max - num_seqs : 0;
    if (has_room && drafter->options.is_adaptive) {
        return choose_adaptive(drafter, num_seqs, offers, num_offers, skipped);
    }
    return share_rows(drafter, offers, num_offers, rows_left);
}
