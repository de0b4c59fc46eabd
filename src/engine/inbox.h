/* Where other threads meet the engine's thread.
 *
 * In: submitted requests, aborts, wake-ups. The engine's thread takes them between two steps. Any
 * thread may also ask here: which requests are unfinished, and the statistics of the last step.
 *
 * One mutex guards all of it, for a few instructions at a time: never while a text is encoded, a
 * step runs or an event is delivered. Requests are allocated before they come here; the table grows
 * on the submitter's thread.
 *
 * A request's last output ends once. Either inbox_abort comes first, and its end is an abort, or
 * inbox_begin_end does. A request with n outputs counts n times among those that wait. */
#ifndef ENGINE_INBOX_H
#define ENGINE_INBOX_H

#include <pthread.h>

#include "engine/request_table.h"

// Of requests that were never scheduled; 0: no bound. One request may always wait, however long.
struct inbox_bounds {
    uint32_t max_num_waiting;
    uint64_t max_waiting_tokens; // of their prompts
};

struct inbox {
    bool is_ready; // init has succeeded
    pthread_mutex_t mutex;
    pthread_cond_t news; // somebody may wait no longer
    struct inbox_bounds bounds;
    struct request_table requests; // unfinished
    struct request *submitted, *last_submitted; // linked by next_submitted, the oldest first
    struct request *aborted; // linked by next_aborted
    uint64_t next_id; // ids are in order of submission
    uint64_t num_added; // outputs
    uint32_t num_waiting; // outputs of submitted requests, never scheduled
    uint64_t num_waiting_tokens; // of their prompts
    bool is_woken, is_draining, has_failed;
    struct nvllm_stats stats; // as of the last publication
};

struct inbox_news {
    struct request *submitted; // linked by next_submitted, the oldest first
    struct request *aborted; // linked by next_aborted; some may be among the submitted
};

MUST_USE enum status inbox_init(struct inbox *inbox, struct inbox_bounds bounds, struct err *err);
void inbox_fini(struct inbox *inbox); // all-zero is fine; no request may be in it

// ---- any thread ----

// What inbox_submit would say of one output that takes no tokens: asked before work is spent on it.
MUST_USE enum status inbox_check_open(struct inbox *inbox, struct err *err);
// Gives the request its id and takes it over; on failure it stays the caller's and may come again.
// ERR_CAPACITY: too many wait, or the inbox is draining. ERR_DEVICE: the engine has failed.
MUST_USE enum status inbox_submit(struct inbox *inbox, struct request *request, uint64_t *id,
                                  struct err *err);
// True: the request was unfinished, and now its end is an abort.
bool inbox_abort(struct inbox *inbox, uint64_t id);
void inbox_drain(struct inbox *inbox); // nothing is taken in any more
void inbox_wake(struct inbox *inbox); // ends the wait under way, else the next one
uint32_t inbox_num_unfinished(struct inbox *inbox);
bool inbox_is_unfinished(struct inbox *inbox, uint64_t id); // and its last event is still to come
// num_requests_added and num_waiting are those of now, all others of the last publication.
void inbox_read_stats(struct inbox *inbox, struct nvllm_stats *stats);

// ---- the engine's thread ----

// Empties both lists.
struct inbox_news inbox_take(struct inbox *inbox);
// Returns when a request is unfinished, when it is woken, or after `seconds` (below 0: never).
void inbox_wait(struct inbox *inbox, double seconds);
// So many outputs were scheduled for the first time.
void inbox_note_scheduled(struct inbox *inbox, uint32_t num_outputs, uint64_t num_tokens);
// Before the last event of an output whose request was not taken from the aborted ones. False: an
// abort has come first, and the request will be among them.
MUST_USE bool inbox_begin_end(struct inbox *inbox, struct request *request);
// Before the last event of an output whose request was.
void inbox_begin_abort(struct inbox *inbox, struct request *request);
// After an output's last event; was_waiting: it was never scheduled. After that of the last output
// that had not ended the request is unknown.
void inbox_remove(struct inbox *inbox, struct request *request, bool was_waiting);
void inbox_fail(struct inbox *inbox); // nothing is taken in any more, for the device is gone
void inbox_publish(struct inbox *inbox, const struct nvllm_stats *stats);

#endif
