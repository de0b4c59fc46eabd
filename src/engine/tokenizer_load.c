#include "engine/tokenizer_load.h"

#include "base/thread/thread_start.h"

static void *run(void *arg) {
    struct tokenizer_load *load = arg;
    load->status = tokenizer_open(&load->tokenizer, load->checkpoint, &load->err);
    atomic_store(&load->has_failed, load->status != OK);
    return NULL;
}

enum status tokenizer_load_start(struct tokenizer_load *load, const struct checkpoint *checkpoint,
                                 struct err *err) {
    *load = (struct tokenizer_load){.checkpoint = checkpoint};
    struct document_name what;
    bool present = false;
    enum status status = tokenizer_check_present(checkpoint, &what, &present, err);
    if (status) return status;
    if (!present) {
        return err_set(
            err, ERR_IO,
            "%s is missing: it is one of the files that a model is published with, so "
            "get it again with nanovllm pull; skip_tokenizer_init runs token ids without "
            "a tokenizer",
            what.text);
    }
    load->started = thread_start(&load->thread, NULL, run, load) == 0;
    if (!load->started) run(load); // no thread could be started: load it here
    return OK;
}

bool tokenizer_load_has_failed(const struct tokenizer_load *load) {
    return atomic_load(&load->has_failed);
}

enum status tokenizer_load_finish(struct tokenizer_load *load, struct tokenizer **out,
                                  struct err *err) {
    if (load->started) pthread_join(load->thread, NULL);
    *out = load->tokenizer;
    if (load->status && err) *err = load->err;
    return load->status;
}
