/* The thread that drives the engine: steps while there is something to do, else waits. Events of a
 * step become messages, which are sent together when the step is over. */
#ifndef SERVER_ENGINE_THREAD_H
#define SERVER_ENGINE_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "nanovllm.h"
#include "server/loop/loop_queue.h"

struct engine_thread;

struct engine_thread_options {
    struct nvllm_engine *engine; // borrowed
    struct loop_queue *loop_queue; // borrowed
    // On the engine's thread after each step with tokens: how many ran through the model.
    void (*on_step)(uint64_t num_tokens, void *user_data);
    // On the engine's thread before each step or wait; may be NULL. False: no step may run now. It
    // then takes a moment itself, so that the engine's thread does not spin.
    bool (*may_step)(bool has_work, void *user_data);
    // On the loop's thread, once: the engine is lost. Its requests have had their last events.
    void (*on_failed)(const char *sentence, void *user_data);
    void *user_data;
};

MUST_USE enum status engine_thread_start(struct engine_thread **out,
                                         const struct engine_thread_options *options,
                                         struct err *err);
// Returns when no request is unfinished and the thread has ended; its last messages are sent.
void engine_thread_stop(struct engine_thread *thread);
// After the messages were handled. NULL is fine.
void engine_thread_destroy(struct engine_thread *thread);
// For events: a message that goes out with the step's others.
void engine_thread_send(struct engine_thread *thread, struct loop_message *message);

#endif
