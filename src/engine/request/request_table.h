/* The engine's unfinished requests: a hash map from id to the request's output 0. Its lists are
 * linked through the requests, so only growth allocates. */
#ifndef ENGINE_REQUEST_TABLE_H
#define ENGINE_REQUEST_TABLE_H

#include <stddef.h>

#include "engine/request/request.h"

struct request_table {
    struct request **buckets; // [capacity], each a list linked by next_in_bucket
    size_t capacity; // a power of two, or 0
    size_t count; // requests
};

// `first`: output 0, whose id is not in the table. The table borrows it until it is removed.
MUST_USE enum status request_table_add(struct request_table *table, struct request *first,
                                       struct err *err);
struct request *request_table_find(const struct request_table *table, uint64_t id); // or NULL
void request_table_remove(struct request_table *table, uint64_t id); // it must be there
void request_table_fini(struct request_table *table); // all-zero is fine; must be empty

#endif
