/* The engine's unfinished requests: everything about one besides its sequence, found by id. */
#ifndef ENGINE_REQUEST_TABLE_H
#define ENGINE_REQUEST_TABLE_H

#include <stdatomic.h>

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
    bool keeps_stop_token; // the EOS or stop token that ends it is part of its text
    struct buf piece; // text of one event, with room for the longest
    struct nvllm_times times;
    uint32_t counts_slot; // of the token counts (count_slots.h); 0: none
    uint32_t num_flights; // launched steps whose schedules point to its sequence
    bool has_ended; // its last event was delivered: it is freed when the last of them has landed
    enum nvllm_finish_reason finish_reason; // since then

    // The inbox's, written under its mutex.
    bool is_ending; // its last event is being delivered
    atomic_bool is_aborted; // read without the mutex too: no more tokens are delivered
    struct request *next_submitted, *next_aborted;
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
