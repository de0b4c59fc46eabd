/* Where other threads meet the engine's thread.
 *
 * Any thread submits requests, aborts them and wakes the engine. The engine's thread takes these in
 * between two steps. Any thread may also ask which requests are unfinished, and for the statistics
 * of the last step.
 *
 * One mutex guards all of it. It is held for a few instructions: never while a text is encoded, a
 * step runs or an event is delivered. Only submitting may allocate, for the request table.
 *
 * A request ends once. Whichever comes first decides how: inbox_abort, or inbox_begin_end before
 * its last output's last event. A request with n outputs counts n times among those that wait. */
#ifndef ENGINE_INBOX_H
#define ENGINE_INBOX_H

#include <pthread.h>

#include "engine/request/request_table.h"

// Bounds on requests that wait for their first step; 0: none. One request may always wait.
struct inbox_bounds {
    uint32_t max_num_waiting;
    uint64_t max_waiting_tokens; // of their prompts
};

struct inbox {
    bool is_ready; // init has succeeded
    pthread_mutex_t mutex;
    pthread_cond_t changed; // signalled when a request is submitted or the engine is woken
    struct inbox_bounds bounds;
    struct request_table requests; // unfinished
    struct request *submitted, *last_submitted; // linked by next_submitted, the oldest first
    struct request *aborted; // linked by next_aborted
    uint64_t first_id; // what next_id points to where the inbox counts by itself
    uint64_t *next_id; // ids are in order of submission; borrowed where engines count together
    uint64_t num_added; // outputs
    uint64_t num_refused_max_num_waiting, num_refused_max_waiting_tokens; // requests, by the bound
    uint32_t num_waiting; // outputs of submitted requests, never scheduled
    uint64_t num_waiting_tokens; // of their prompts
    uint64_t num_tokens; // most that the unfinished outputs can have, prompts included
    uint32_t num_aborting; // requests whose end is an abort, not delivered yet
    bool is_woken, is_draining, has_failed;
    struct nvllm_stats stats; // as of the last publication
};

struct inbox_changes {
    struct request *submitted; // linked by next_submitted, the oldest first
    struct request *aborted; // linked by next_aborted; some may be among the submitted
};

// `next_id`: the counter that several inboxes share; their caller makes one submission at a time.
// NULL: the inbox counts by itself.
MUST_USE enum status inbox_init(struct inbox *inbox, struct inbox_bounds bounds, uint64_t *next_id,
                                struct err *err);
void inbox_fini(struct inbox *inbox); // all-zero is fine; no request may be in it

// ---- any thread ----

// Fails as inbox_submit would for a request of one output and no tokens. Ask before building one.
MUST_USE enum status inbox_check_open(struct inbox *inbox, struct err *err);
// Gives the request its id and takes it over. On failure it stays the caller's.
// ERR_CAPACITY: too many wait, or the inbox is draining. ERR_DEVICE: the engine has failed.
MUST_USE enum status inbox_submit(struct inbox *inbox, struct request *request, uint64_t *id,
                                  struct err *err);
// True: the request was unfinished, and will end as aborted.
bool inbox_abort(struct inbox *inbox, uint64_t id);
void inbox_drain(struct inbox *inbox); // refuses all later requests
void inbox_wake(struct inbox *inbox); // ends the present inbox_wait, or else the next one
uint32_t inbox_num_unfinished(struct inbox *inbox);
bool inbox_is_unfinished(struct inbox *inbox, uint64_t id); // its last event is not delivered yet
uint64_t inbox_num_tokens(struct inbox *inbox);
uint32_t inbox_num_aborting(struct inbox *inbox);
// num_requests_added and num_waiting are current, all others are those of inbox_publish.
void inbox_read_stats(struct inbox *inbox, struct nvllm_stats *stats);

// ---- the engine's thread ----

// Empties both lists.
struct inbox_changes inbox_take(struct inbox *inbox);
// Returns when a request is unfinished, when it is woken, or after `seconds` (below 0: never).
void inbox_wait(struct inbox *inbox, double seconds);
// Notes that num_outputs outputs with num_tokens prompt tokens no longer wait.
void inbox_note_scheduled(struct inbox *inbox, uint32_t num_outputs, uint64_t num_tokens);
// Call it before the last event of an output that was not aborted. False: an abort came first, and
// will end the output.
MUST_USE bool inbox_begin_end(struct inbox *inbox, struct request *request);
// Call it before the last event of an output that was aborted.
void inbox_begin_abort(struct inbox *inbox, struct request *request);
// Call it after an output's last event. was_waiting: it was never scheduled. Once all outputs have
// ended, the request is no longer in the table.
void inbox_remove(struct inbox *inbox, struct request *request, bool was_waiting);
void inbox_fail(struct inbox *inbox); // refuses all later requests: a step failed
void inbox_publish(struct inbox *inbox, const struct nvllm_stats *stats);

#endif
