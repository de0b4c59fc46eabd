#include "server/loop/engine_thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "api/step_tokens.h"
#include "base/text/c_locale.h"

struct engine_thread {
    struct engine_thread_options options;
    pthread_t thread;
    atomic_bool is_ending;
    struct loop_message_list out; // the engine's thread alone
    struct loop_message failed;
    struct nvllm_error error;
};

static void count_step(struct engine_thread *thread, uint64_t *num_tokens) {
    uint64_t total = api_num_step_tokens(thread->options.engine);
    if (total > *num_tokens)
        thread->options.on_step(total - *num_tokens, thread->options.user_data);
    *num_tokens = total;
}

static bool may_step(struct engine_thread *thread, bool has_work) {
    const struct engine_thread_options *options = &thread->options;
    return !options->may_step || options->may_step(has_work, options->user_data);
}

static void handle_failed(struct loop_message *message) {
    struct engine_thread *thread =
        (struct engine_thread *)((char *)message - offsetof(struct engine_thread, failed));
    thread->options.on_failed(thread->error.message, thread->options.user_data);
}

static void *run_thread(void *arg) {
    struct engine_thread *thread = arg;
    struct nvllm_engine *engine = thread->options.engine;
    enum nvllm_status status = NVLLM_OK;
    uint64_t num_tokens = 0;
    while (!status) {
        bool is_ending =
            atomic_load(&thread->is_ending); // before asking: nothing is added after it
        bool has_work = nvllm_engine_has_unfinished(engine);
        if (!may_step(thread, has_work)) {
            // Aborted requests still end, and new ones are taken in.
            status = nvllm_engine_wait(engine, 0, &thread->error);
        } else if (has_work) {
            status = nvllm_engine_step(engine, &thread->error);
            count_step(thread, &num_tokens);
        } else if (is_ending) {
            break;
        } else {
            status = nvllm_engine_wait(engine, -1, &thread->error);
        }
        loop_queue_send(thread->options.loop_queue, &thread->out);
    }
    if (status) {
        thread->failed.handle = handle_failed;
        loop_queue_send_one(thread->options.loop_queue, &thread->failed);
    }
    return NULL;
}

enum status engine_thread_start(struct engine_thread **out,
                                const struct engine_thread_options *options, struct err *err) {
    struct engine_thread *thread = calloc(1, sizeof *thread);
    if (!thread) return err_nomem(err, "threads");
    thread->options = *options;
    int fault = pthread_create(&thread->thread, NULL, run_thread, thread);
    if (fault) {
        free(thread);
        return err_set(err, ERR_IO, "cannot start a thread: %s", c_locale_strerror(fault));
    }
    *out = thread;
    return OK;
}

void engine_thread_stop(struct engine_thread *thread) {
    atomic_store(&thread->is_ending, true);
    nvllm_engine_wake(thread->options.engine);
    pthread_join(thread->thread, NULL);
}

void engine_thread_destroy(struct engine_thread *thread) {
    free(thread);
}

void engine_thread_send(struct engine_thread *thread, struct loop_message *message) {
    loop_message_list_add(&thread->out, message);
}
