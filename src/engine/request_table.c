#include "engine/request_table.h"

#include <stdlib.h>

#include "base/check.h"

// Ids are consecutive numbers; the map wants keys whose low bits are well mixed.
static uint64_t mixed(uint64_t id) {
    return id * 0x9e3779b97f4a7c15u;
}

static struct request *new_request(void) {
    struct request *request = calloc(1, sizeof *request);
    if (request) request->first = request;
    return request;
}

enum status request_create(struct request **out, struct err *err) {
    struct request *request = new_request();
    *out = request;
    if (!request) return err_nomem(err, "request");
    request->num_outputs = request->num_unended = request->num_held = 1;
    return OK;
}

enum status request_create_output(struct request *first, struct request **out, struct err *err) {
    struct request *last = first, *request = new_request();
    *out = request;
    if (!request) return err_nomem(err, "request");
    while (last->next_output) last = last->next_output;
    last->next_output = request;
    request->first = first;
    request->index = first->num_outputs++;
    first->num_unended++;
    first->num_held++;
    return OK;
}

static void destroy_one(struct request *request) {
    sequence_destroy(request->seq);
    sampling_fini(&request->sampling);
    output_text_fini(&request->text);
    buf_fini(&request->piece);
    buf_fini(&request->echo);
    free(request->prompt_logprobs);
    free(request);
}

void request_destroy(struct request *first) {
    struct request *request = first ? first->next_output : NULL;
    while (request) { // what they borrow is the first's
        struct request *next = request->next_output;
        destroy_one(request);
        request = next;
    }
    if (first) destroy_one(first);
}

static enum status grow(struct request_table *table, struct err *err) {
    uint32_t capacity = table->capacity ? table->capacity * 2 : 64;
    if (capacity < table->capacity) return err_nomem(err, "requests");
    enum status status = u64map_reserve(&table->slot_of, capacity, err);
    if (status) return status;
    struct request **requests = realloc(table->requests, capacity * sizeof *requests);
    if (!requests) return err_nomem(err, "requests");
    table->requests = requests;
    uint32_t *free_slots = realloc(table->free_slots, capacity * sizeof *free_slots);
    if (!free_slots) return err_nomem(err, "requests");
    table->free_slots = free_slots;
    for (uint32_t slot = capacity; slot-- > table->capacity;) {
        requests[slot] = NULL;
        free_slots[table->num_free++] = slot;
    }
    table->capacity = capacity;
    return OK;
}

enum status request_table_add(struct request_table *table, struct request *first, struct err *err) {
    if (!table->num_free) {
        enum status status = grow(table, err);
        if (status) return status;
    }
    uint32_t slot = table->free_slots[--table->num_free];
    table->requests[slot] = first;
    u64map_put(&table->slot_of, mixed(first->seq->id), slot);
    return OK;
}

struct request *request_table_find(const struct request_table *table, uint64_t id) {
    uint32_t slot;
    if (!u64map_get(&table->slot_of, mixed(id), &slot)) return NULL;
    return table->requests[slot];
}

void request_table_remove(struct request_table *table, uint64_t id) {
    uint32_t slot;
    bool found = u64map_get(&table->slot_of, mixed(id), &slot);
    CHECK(found, "id=%llu", (unsigned long long)id);
    u64map_remove(&table->slot_of, mixed(id));
    table->requests[slot] = NULL;
    table->free_slots[table->num_free++] = slot;
}

void request_table_fini(struct request_table *table) {
    free(table->requests);
    free(table->free_slots);
    u64map_fini(&table->slot_of);
    *table = (struct request_table){0};
}
