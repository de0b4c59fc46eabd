#include "backend/sample_oracle.h"

#include <math.h>
#include <stdlib.h>

#include "support/cmocka_all.h"

static int compare_entries(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool is_close(double a, double b) {
    return fabs(a - b) < 1e-6 * fabs(b);
}

struct oracle oracle_make(const float *logits, uint32_t vocab_size, struct sample_row row) {
    struct oracle oracle = {.entries = malloc(vocab_size * sizeof *oracle.entries)};
    assert_non_null(oracle.entries);
    for (uint32_t i = 0; i < vocab_size; i++) {
        oracle.entries[i] = (struct entry){.id = i, .logit = (double)logits[i]};
    }
    qsort(oracle.entries, vocab_size, sizeof *oracle.entries, compare_entries);
    struct entry *e = oracle.entries;
    uint32_t n = vocab_size;
    for (uint32_t i = 0; i < n; i++) {
        e[i].weight = exp((e[i].logit - e[0].logit) / (double)row.temperature);
        if (row.min_p > 0 && i && is_close(e[i].weight, (double)row.min_p)) oracle.close = true;
    }
    while (n > 1 && e[n - 1].weight < (double)row.min_p) n--;
    if (row.top_k > 0 && (uint32_t)row.top_k < n) n = (uint32_t)row.top_k;
    for (uint32_t i = 0; i < n; i++) oracle.mass += e[i].weight;
    if (row.top_p < 1) {
        double target = (double)row.top_p * oracle.mass, sum = 0;
        uint32_t kept = 0;
        while (kept < n && sum < target) sum += e[kept++].weight;
        oracle.close |= is_close(sum, target) || is_close(sum - e[kept - 1].weight, target);
        n = kept;
        oracle.mass = sum;
    }
    oracle.num_kept = n;
    return oracle;
}

static int compare_ids(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

uint32_t oracle_draw(struct oracle *oracle, double uniform) {
    qsort(oracle->entries, oracle->num_kept, sizeof *oracle->entries, compare_ids);
    double sum = 0;
    for (uint32_t i = 0; i < oracle->num_kept; i++) {
        sum += oracle->entries[i].weight / oracle->mass;
        if (fabs(sum - uniform) < 1e-6) oracle->close = true;
        if (sum > uniform) return oracle->entries[i].id;
    }
    return oracle->entries[oracle->num_kept - 1].id;
}

void oracle_fini(struct oracle *oracle) {
    free(oracle->entries);
    *oracle = (struct oracle){0};
}
