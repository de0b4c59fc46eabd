/* The engine's unfinished requests: everything about one besides its sequence, found by id.
 *
 * What the caller's request asks for n times is n of these, one for each output: a family, linked from
 * the one with index 0, which the table knows. They have one id, are submitted, aborted and freed
 * together, and end each by itself. */
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
    struct request *first; // of its family; itself where index is 0
    struct request *next_output; // with the next index; NULL: none
    uint32_t index;
    // Of the first alone:
    uint32_t num_outputs; // the family's size
    uint32_t num_unended; // of them, whose last event is not delivered
    uint32_t num_held; // of them, that have not ended or are on launched steps; 0: it is freed
    struct buf echo; // the prompt's text, where it is wanted
    // [num_prompt_rows][1 + params.prompt_logprobs]: row i is of prompt token i + 1. NULL: not wanted.
    struct nvllm_logprob *prompt_logprobs;
    uint32_t num_prompt_rows; // num_prompt_tokens - 1
    uint32_t
        num_rows_launched; // leading ones; less again when the request is preempted before the last
    uint32_t num_rows_landed; // leading ones that are there

    struct sequence *seq; // its `user` points back
    struct sampling sampling; // but for the first's, borrowed from that
    struct output_text text;
    nvllm_event_fn on_event; // may be NULL
    void *user_data;
    bool finish_event_only;
    bool keeps_stop_token; // the EOS or stop token that ends it is part of its text
    struct buf piece; // text of one event, with room for the longest
    struct nvllm_times times;
    uint32_t counts_slot; // of the token counts (count_slots.h); 0: none
    uint32_t num_flights; // launched steps whose schedules point to its sequence
    bool has_ended; // its last event was delivered
    enum nvllm_finish_reason finish_reason; // since then

    // The inbox's, of the first alone, written under its mutex.
    bool is_ending; // the family's last event is being delivered
    atomic_bool is_aborted; // read without the mutex too: no more tokens are delivered
    struct request *next_submitted, *next_aborted;
};

struct request_table {
    struct request **requests; // [capacity], NULL where free
    uint32_t *free_slots; // [capacity], the first num_free are valid
    uint32_t capacity, num_free;
    struct u64map slot_of; // mixed id -> slot
};

// A family of one, all else zero.
MUST_USE enum status request_create(struct request **out, struct err *err);
// One more of the family, at its end; all else zero.
MUST_USE enum status request_create_output(struct request *first, struct request **out,
                                           struct err *err);
// Frees the family. NULL and half-built are fine.
void request_destroy(struct request *first);

// Takes the family over; on failure it stays the caller's.
MUST_USE enum status request_table_add(struct request_table *table, struct request *first,
                                       struct err *err);
struct request *request_table_find(const struct request_table *table, uint64_t id); // or NULL
void request_table_remove(struct request_table *table, uint64_t id);
void request_table_fini(struct request_table *table); // must be empty of requests

#endif
