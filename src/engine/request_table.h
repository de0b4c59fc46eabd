/* The engine's unfinished requests: everything about one besides its sequence, found by id. */
#ifndef ENGINE_REQUEST_TABLE_H
#define ENGINE_REQUEST_TABLE_H

#include "base/map.h"
#include "engine/model_runner.h"
#include "engine/output_text.h"
#include "engine/sampling.h"
#include "engine/sequence.h"
#include "nanovllm.h"

struct request {
    struct sequence *seq; // its `user` points back
    struct sampling sampling;
    struct output_text text;
    nvllm_event_fn on_event; // may be NULL
    void *user_data;
    bool finish_event_only;
    // Where the launched steps that sample tokens of it keep it, by slot; NULL: that one does not.
    struct request **flight_entries[MODEL_RUNNER_SLOTS];
    bool ending; // its last event is being delivered
    bool abort_requested; // in the engine's list of aborts to run after the callback
    struct request *next_aborted;
};

struct request_table {
    struct request **requests; // [capacity], NULL where free
    uint32_t *free_slots; // [capacity], the first num_free are valid
    uint32_t capacity, num_free;
    struct u64map slot_of; // mixed id -> slot
};

// Takes the request over; on failure it stays the caller's.
MUST_USE enum status request_table_add(struct request_table *table, struct request *request,
                                       struct err *err);
struct request *request_table_find(const struct request_table *table, uint64_t id); // or NULL
void request_table_remove(struct request_table *table, uint64_t id);
void request_table_fini(struct request_table *table); // must be empty of requests
void request_destroy(struct request *request); // NULL and half-built are fine

#endif
