/* Joining one long word, for example ten million times the same letter. Each rank that occurs has a
 * bucket: the positions of its pair. The bucket with the lowest rank is processed from left to
 * right. A position is appended when its pair arises, and checked when its turn comes, because the
 * pair may be gone by then. So joining never searches. Positions arise almost in order; a bucket
 * that is not in order is sorted. */
#include <stdlib.h>

#include "text/tokenizer/tokenizer_bpe.h"

static const uint32_t NONE = UINT32_MAX;

// Also correct after a failure half-way: num_buckets counts exactly the buckets that exist.
static void free_buckets(struct bpe_scratch *scratch) {
    for (size_t i = 0; i < scratch->num_buckets; i++) {
        scratch->bucket_of_rank[scratch->buckets[i].rank] = 0;
        free(scratch->buckets[i].positions);
    }
    scratch->num_buckets = 0;
    scratch->num_queued = 0;
    free(scratch->symbols);
    scratch->symbols = NULL;
}

void bpe_scratch_fini(struct bpe_scratch *scratch) {
    free_buckets(scratch);
    free(scratch->cache);
    free(scratch->bucket_of_rank);
    free(scratch->buckets);
    free(scratch->queue);
    buf_fini(&scratch->spelled);
    *scratch = (struct bpe_scratch){0};
}

static void queue_sift_down(uint32_t *queue, size_t len, size_t i) {
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= len) return;
        if (child + 1 < len && queue[child + 1] < queue[child]) child++;
        if (queue[i] <= queue[child]) return;
        uint32_t rank = queue[i];
        queue[i] = queue[child];
        queue[child] = rank;
        i = child;
    }
}

// A binary heap of ranks, of which a million positions have few.
static enum status queue_push(struct bpe_scratch *scratch, uint32_t rank, struct err *err) {
    if (scratch->num_queued == scratch->queue_capacity) {
        size_t capacity = scratch->queue_capacity ? scratch->queue_capacity * 2 : 64;
        uint32_t *queue = realloc(scratch->queue, capacity * sizeof *queue);
        if (!queue) return err_nomem(err, "long word");
        scratch->queue = queue;
        scratch->queue_capacity = capacity;
    }
    size_t i = scratch->num_queued++;
    uint32_t *queue = scratch->queue;
    for (; i > 0 && queue[(i - 1) / 2] > rank; i = (i - 1) / 2) queue[i] = queue[(i - 1) / 2];
    queue[i] = rank;
    return OK;
}

static void queue_pop(struct bpe_scratch *scratch) {
    scratch->queue[0] = scratch->queue[--scratch->num_queued];
    queue_sift_down(scratch->queue, scratch->num_queued, 0);
}

// The bucket of the merge's rank, made at first use. Pointers to other buckets become invalid.
static enum status bucket_get(struct bpe_scratch *scratch, const struct bpe_merge *merge,
                              struct bpe_bucket **out, struct err *err) {
    uint32_t index = scratch->bucket_of_rank[merge->rank];
    if (index == 0) {
        if (scratch->num_buckets == scratch->buckets_capacity) {
            size_t capacity = scratch->buckets_capacity ? scratch->buckets_capacity * 2 : 64;
            struct bpe_bucket *buckets = realloc(scratch->buckets, capacity * sizeof *buckets);
            if (!buckets) return err_nomem(err, "long word");
            scratch->buckets = buckets;
            scratch->buckets_capacity = capacity;
        }
        scratch->buckets[scratch->num_buckets] =
            (struct bpe_bucket){.left = (uint32_t)(merge->pair >> 32),
                                .right = (uint32_t)merge->pair,
                                .new_id = merge->new_id,
                                .rank = merge->rank};
        index = (uint32_t)++scratch->num_buckets;
        scratch->bucket_of_rank[merge->rank] = index;
    }
    *out = &scratch->buckets[index - 1];
    return OK;
}

// Appends `position` to the bucket of the pair that starts there, if that pair can be joined.
static enum status offer(const struct bpe *bpe, struct bpe_scratch *scratch, uint32_t position,
                         struct err *err) {
    const struct bpe_symbol *symbol = &scratch->symbols[position];
    if (symbol->next == NONE) return OK;
    const struct bpe_merge *merge =
        bpe_find_merge(bpe, symbol->id, scratch->symbols[symbol->next].id);
    if (!merge) return OK;
    struct bpe_bucket *bucket = NULL;
    enum status status = bucket_get(scratch, merge, &bucket, err);
    if (status) return status;
    if (bucket->len == bucket->capacity) {
        size_t capacity = bucket->capacity ? bucket->capacity * 2 : 4;
        uint32_t *positions = realloc(bucket->positions, capacity * sizeof *positions);
        if (!positions) return err_nomem(err, "long word");
        bucket->positions = positions;
        bucket->capacity = capacity;
    }
    if (bucket->len > bucket->next && bucket->positions[bucket->len - 1] > position) {
        bucket->unsorted = true;
    }
    bucket->positions[bucket->len++] = position;
    if (bucket->queued) return OK;
    bucket->queued = true;
    return queue_push(scratch, bucket->rank, err);
}

static int compare_positions(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

// Takes the leftmost position out of the bucket. A bucket that becomes empty leaves the queue.
static uint32_t bucket_take(struct bpe_scratch *scratch, struct bpe_bucket *bucket) {
    if (bucket->unsorted) {
        qsort(bucket->positions + bucket->next, bucket->len - bucket->next,
              sizeof *bucket->positions, compare_positions);
        bucket->unsorted = false;
    }
    uint32_t position = bucket->positions[bucket->next++];
    if (bucket->next == bucket->len) {
        bucket->next = bucket->len = 0;
        bucket->queued = false;
        queue_pop(scratch);
    }
    return position;
}

// Joins the pair at the leftmost position of the lowest rank. If one of the two symbols was joined
// to another one meanwhile, the pair is gone and nothing happens.
static enum status join_next(const struct bpe *bpe, struct bpe_scratch *scratch, struct err *err) {
    enum { STEPS = 64 }; // cost of one join: symbols and merges are scattered in memory
    enum status status = effort_spend(scratch->effort, STEPS, err);
    if (status) return status;
    struct bpe_symbol *symbols = scratch->symbols;
    struct bpe_bucket *bucket = &scratch->buckets[scratch->bucket_of_rank[scratch->queue[0]] - 1];
    struct bpe_symbol *symbol = &symbols[bucket_take(scratch, bucket)];
    if (symbol->id != bucket->left || symbol->next == NONE) return OK;
    if (symbols[symbol->next].id != bucket->right) return OK;
    symbol->id = bucket->new_id;
    symbols[symbol->next].id = NONE;
    symbol->next = symbols[symbol->next].next;
    if (symbol->next != NONE) symbols[symbol->next].previous = (uint32_t)(symbol - symbols);
    // `bucket` is not valid after an offer.
    if (symbol->previous != NONE) {
        status = offer(bpe, scratch, symbol->previous, err);
        if (status) return status;
    }
    return offer(bpe, scratch, (uint32_t)(symbol - symbols), err);
}

enum status bpe_join_long(const struct bpe *bpe, struct bpe_scratch *scratch, int32_t *ids,
                          size_t *num_ids, struct err *err) {
    enum status status = OK;
    size_t n = *num_ids;
    if (!scratch->bucket_of_rank) {
        scratch->bucket_of_rank = calloc(bpe->num_merges + 1, sizeof *scratch->bucket_of_rank);
        if (!scratch->bucket_of_rank) return err_nomem(err, "long word");
    }
    scratch->symbols = malloc(n * sizeof *scratch->symbols);
    if (!scratch->symbols) return err_nomem(err, "long word");
    for (size_t i = 0; i < n; i++) {
        scratch->symbols[i] = (struct bpe_symbol){.id = (uint32_t)ids[i],
                                                  .previous = i ? (uint32_t)(i - 1) : NONE,
                                                  .next = i + 1 < n ? (uint32_t)(i + 1) : NONE};
    }
    for (size_t i = 0; i < n && !status; i++) status = offer(bpe, scratch, (uint32_t)i, err);
    while (scratch->num_queued && !status) status = join_next(bpe, scratch, err);
    if (!status) {
        *num_ids = 0;
        for (size_t i = 0; i < n; i++) {
            if (scratch->symbols[i].id != NONE) ids[(*num_ids)++] = (int32_t)scratch->symbols[i].id;
        }
    }
    free_buckets(scratch);
    return status;
}
