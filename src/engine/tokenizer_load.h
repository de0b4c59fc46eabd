/* Reads tokenizer.json on a thread of its own, beside the weights and the warm-up. */
#ifndef ENGINE_TOKENIZER_LOAD_H
#define ENGINE_TOKENIZER_LOAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"
#include "checkpoint/checkpoint.h"
#include "text/tokenizer/tokenizer.h"

struct tokenizer_load {
    const struct checkpoint *checkpoint;
    struct tokenizer *tokenizer;
    enum status status;
    struct err err;
    pthread_t thread;
    bool started;
    atomic_bool has_failed;
};

// The checkpoint is borrowed until the finish. After an error there is nothing to finish.
MUST_USE enum status tokenizer_load_start(struct tokenizer_load *load,
                                          const struct checkpoint *checkpoint, struct err *err);
// Whether the file is already known to be broken, so that nobody loads weights for nothing. The
// finish says why.
bool tokenizer_load_has_failed(const struct tokenizer_load *load);
// Call it once after the start. It waits for the thread without a deadline: the time of a load is
// bounded by the file's size (text/effort.h). *out: the caller's, also after an error.
MUST_USE enum status tokenizer_load_finish(struct tokenizer_load *load, struct tokenizer **out,
                                           struct err *err);

#endif
