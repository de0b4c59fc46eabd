/* The loop of generate and embed. It takes requests from a source and keeps a bounded number of
 * them in the engine. It writes each result once it and all before it are finished. Memory stays
 * bounded for inputs of any length: there are limits on unfinished requests and on the bytes of
 * results that wait for an earlier one. */
#ifndef CMD_GENERATE_RUN_H
#define CMD_GENERATE_RUN_H

#include "base/os/output_file.h"
#include "cmd/generate/prompt_source.h"
#include "cmd/generate/result_line.h"
#include "cmd/terminal/progress.h"

enum generate_format {
    GENERATE_JSONL, // one result line each
    GENERATE_LABELS, // "Prompt: ..." and "Completion: ..." of each, quoted
    GENERATE_STREAM, // the text of the only request, while it is generated
    GENERATE_VECTORS, // a line of JSON with the vector of each
};

struct generate_task;

struct generate_run {
    struct nvllm_engine *engine; // borrowed
    struct prompt_source *source; // borrowed
    struct output_file *output; // borrowed
    struct progress *progress; // borrowed
    enum generate_format format;
    size_t unfinished_max; // requests in the engine at once
    bool has_times; // result lines include the requests' times
    const struct nvllm_pooling *pooling; // of GENERATE_VECTORS, borrowed; else NULL
    bool is_base64; // vectors are base64 of their float32 bytes
    // Filled by the run.
    uint64_t num_requests; // taken from the source
    uint64_t num_finished; // requests that ended by themselves
    uint64_t num_cut; // finished ones that were cut by max_tokens or at the context's end
    uint64_t num_context_full; // cut ones that reached the context's end
    uint64_t num_cut_tokens; // tokens that the last cut one generated
    uint64_t num_refused;
    uint64_t num_aborted;
    bool interrupted;
    char last_refusal[512]; // the sentence of the last refused request
    // The run's own.
    struct generate_task *first, *last; // in input order, not yet written
    struct generate_task *next; // the last task, while the engine does not have it yet; else NULL
    struct request_line next_line; // of `next`
    size_t num_unfinished; // in the engine
    size_t held_bytes; // of all tasks in the list
    bool source_ended;
    enum status status; // the first fault that ends the run, with its sentence
    struct err err;
    struct buf line;
};

// Runs until the source ends, an interrupt or a fault. Finished results are written in every case.
// Refused requests and interrupts are not faults: they return OK.
MUST_USE enum status generate_run_execute(struct generate_run *run, struct err *err);

#endif
