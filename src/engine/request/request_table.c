#include "engine/request/request_table.h"

#include <stdlib.h>

#include "base/check.h"

enum { CAPACITY_MIN = 64 };

// Ids are consecutive numbers, so their low bits spread the requests evenly.
static struct request **bucket_of(const struct request_table *table, uint64_t id) {
    return &table->buckets[id & (table->capacity - 1)];
}

static void insert(struct request_table *table, struct request *first) {
    struct request **bucket = bucket_of(table, first->seq->id);
    first->next_in_bucket = *bucket;
    *bucket = first;
}

static enum status grow(struct request_table *table, struct err *err) {
    struct request_table grown = {.capacity = table->capacity ? table->capacity * 2 : CAPACITY_MIN,
                                  .count = table->count};
    grown.buckets = calloc(grown.capacity, sizeof *grown.buckets);
    if (!grown.buckets) return err_nomem(err, "requests");
    for (size_t i = 0; i < table->capacity; i++) {
        for (struct request *first = table->buckets[i], *next; first; first = next) {
            next = first->next_in_bucket;
            insert(&grown, first);
        }
    }
    free(table->buckets);
    *table = grown;
    return OK;
}

enum status request_table_add(struct request_table *table, struct request *first, struct err *err) {
    if (table->count == table->capacity) {
        enum status status = grow(table, err);
        if (status) return status;
    }
    insert(table, first);
    table->count++;
    return OK;
}

struct request *request_table_find(const struct request_table *table, uint64_t id) {
    if (!table->count) return NULL;
    struct request *first = *bucket_of(table, id);
    while (first && first->seq->id != id) first = first->next_in_bucket;
    return first;
}

void request_table_remove(struct request_table *table, uint64_t id) {
    CHECK(request_table_find(table, id), "id=%llu", (unsigned long long)id);
    struct request **link = bucket_of(table, id);
    while ((*link)->seq->id != id) link = &(*link)->next_in_bucket;
    *link = (*link)->next_in_bucket;
    table->count--;
}

void request_table_fini(struct request_table *table) {
    free(table->buckets);
    *table = (struct request_table){0};
}
